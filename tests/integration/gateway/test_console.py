"""The console's JSON over a real Redis: what operators see of queues, workers and one request, and who sees it."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from common.domain import FinishReason, Priority
from common.records import Failure
from common.wire.snapshot import ClassStatus, QueuePosition
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


async def get(
    gateway: RunningGateway, path: str, headers: Mapping[str, str] | None = None
) -> tuple[HTTPStatus, Any]:
    """What a browser gets; asked from another thread, as the status endpoint does."""
    status, body, content_type = await asyncio.to_thread(
        gateway.pages["console"], f"/console/{path}", headers or {}
    )
    return status, json.loads(body) if content_type == "application/json" else body.decode()


async def to_the_end(call: grpc.aio.UnaryStreamCall) -> None:
    while await call.read() is not grpc.aio.EOF:
        continue


async def test_the_overview_is_the_newest_snapshot(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Queues by class, workers with their KV memory, models and names, within about a second."""
    async with asyncio.timeout(scaled(60)):
        while True:
            await scheduler.snapshot(
                drain_rate=2.5, classes=[ClassStatus(Priority.HIGH, 3, 30, 1500)]
            )
            status, found = await get(gateway, "overview")
            assert status == HTTPStatus.OK
            if found["workers"] and found["queues"][0]["leader"]:
                break
            await asyncio.sleep(0.1)
    (queue,) = found["queues"]
    assert (queue["model"], queue["drain_rate"]) == ("tiny", 2.5)
    assert queue["classes"][0] == {
        "priority": "PRIORITY_HIGH",
        "num_waiting": 3,
        "waiting_tokens": "30",
        "oldest_age": "1.500s",
    }
    (worker,) = found["workers"]
    assert (worker["worker_id"], worker["kv_blocks"], worker["draining"]) == ("w1", 100, False)
    assert [model["name"] for model in found["models"]] == ["tiny"]


async def test_a_request_from_the_queue_to_its_end(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Stages follow one another without a gap; what was asked and answered is not part of it."""
    call = gateway.inference.GenerateStream(request(stop=max_tokens(2)))
    accepted = await call.read()
    request_id = accepted.accepted.request_id
    await scheduler.snapshot(positions=[QueuePosition(request_id, 0, "no worker")])
    async with asyncio.timeout(scaled(60)):
        while (await get(gateway, f"request?id={request_id}"))[1]["waiting_for"] != "no worker":  # noqa: ASYNC110 - as a browser does
            await asyncio.sleep(0.1)
    _, queued = await get(gateway, f"request?id={request_id}")
    assert (queued["status"], [one["name"] for one in queued["stages"]]) == ("queued", ["queue"])
    assert len(queued["trace_id"]) == 32
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    await led.checkpoint()
    _, running = await get(gateway, f"request?id={request_id}")
    assert running["worker_id"] == "w1"
    assert running["usage"]["completion_tokens"] == 2
    assert [one["name"] for one in running["stages"]] == ["queue and prefill", "decode"]
    await led.finish(FinishReason.ERROR, failure=Failure("INTERNAL", "broken", "NAN_LOGITS"))
    with pytest.raises(grpc.aio.AioRpcError):
        await to_the_end(call)
    _, ended = await get(gateway, f"request?id={request_id}")
    assert ended["failure"] == "NAN_LOGITS: broken"
    assert ended["stages"] == [
        {"name": "queue", "begin_s": 0.0, "end_s": 0.001},
        {"name": "prefill", "begin_s": 0.001, "end_s": 0.5},
    ]
    assert "w0 " not in json.dumps([queued, running, ended]), "no word of the answer"


async def test_what_is_not_there(gateway: RunningGateway) -> None:
    """Requests that nobody knows, files that nobody has; paths do not lead out of the folder."""
    for wanted in ("", "nonsense", "tiny/0/0123456789abcdef0123456789abcdef"):
        status, found = await get(gateway, f"request?id={wanted}")
        assert status == HTTPStatus.NOT_FOUND
        assert "no such request" in found["error"]
    for path in ("nothing.js", "../console.py", "%2e%2e/console.py", "static/console.js"):
        assert (await get(gateway, path))[0] == HTTPStatus.NOT_FOUND


async def test_operators_only(redis_server: RedisServer, tmp_path: Path) -> None:
    """With an admin key the pages are still for everybody, and what they show is not."""
    key = "an-admin-key-of-24-chars"
    async with running_gateway(redis_server.url, tmp_path, admin_key=key) as gateway:
        for path in ("", "console.js", "console.css", "charts.js", "timeline.js", "page.js"):
            assert (await get(gateway, path))[0] == HTTPStatus.OK
        for path in ("overview", "request?id=x"):
            assert (await get(gateway, path))[0] == HTTPStatus.UNAUTHORIZED
            wrong = {"authorization": "Bearer another-key"}
            assert (await get(gateway, path, wrong))[0] == HTTPStatus.UNAUTHORIZED
        assert (await get(gateway, "overview", {"authorization": f"Bearer {key}"}))[0] == 200
