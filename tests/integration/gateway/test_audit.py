"""Who did what is on record, the text is not; and what is stored can be forgotten."""

import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from common.domain import FinishReason
from common.records import Failure
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.raw_http import post
from tests.integration.gateway.requests import max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

ADMIN_KEY = "operators-only-0123456789"
OPERATOR = (("authorization", f"Bearer {ADMIN_KEY}"),)


async def test_every_decision_is_a_line(
    redis_server: RedisServer, served: ScriptedScheduler, tmp_path: Path
) -> None:
    """Accepted, ended, refused and not let in, over both APIs, and what operators ordered; no prompt and no output."""
    path = tmp_path / "audit.jsonl"
    async with running_gateway(
        redis_server.url, tmp_path, require_keys=True, admin_key=ADMIN_KEY, audit_log=path
    ) as gateway:
        made = await gateway.admin.CreateKey(
            admin.CreateKeyRequest(tenant="blue"), metadata=OPERATOR
        )
        key = (("authorization", f"Bearer {made.secret}"),)
        await gateway.inference.Generate(request(stop=max_tokens(2)), metadata=key)
        bearer = f"authorization: Bearer {made.secret}"
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
        await post(gateway.http, "/v1/completions", body, bearer, "x-request-id: mine")
        await post(gateway.http, "/v1/completions", {**body, "temperature": 9}, bearer)
        await post(gateway.http, "/v1/completions", body)
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.admin.RevokeKey(admin.RevokeKeyRequest(key_id=made.key.key_id))
        await gateway.stop()
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        *("ordered", "accepted", "ended", "accepted", "ended"),
        *("refused", "unauthenticated", "unauthenticated"),
    ]
    ordered, accepted, ended, _, mine, refused, *outside = lines
    assert ordered["tenant"] == "blue"
    assert accepted["request_id"] == ended["request_id"]
    assert (ended["key_id"], ended["tenant"]) == (made.key.key_id, "blue")
    assert (ended["prompt_tokens"], ended["completion_tokens"], ended["decision"]) == (3, 2, "ok")
    assert mine["client_request_id"] == "mine"
    assert refused["decision"] == "INVALID_REQUEST"
    assert [line["decision"] for line in outside] == ["MISSING_KEY", "ADMIN_KEY_REQUIRED"]
    whole = path.read_text()
    assert "hello" not in whole
    assert "w0" not in whole
    assert made.secret not in whole
    assert path.stat().st_mode & 0o077 == 0


async def test_text_is_on_record_where_it_is_asked_for(
    redis_server: RedisServer, served: ScriptedScheduler, tmp_path: Path
) -> None:
    """Prompt and answer stand in the line of the end."""
    path = tmp_path / "audit.jsonl"
    async with running_gateway(
        redis_server.url, tmp_path, audit_log=path, audit_content=True
    ) as gateway:
        await gateway.inference.Generate(request("hello world", stop=max_tokens(2)))
        await gateway.stop()
    accepted, ended = [json.loads(line) for line in path.read_text().splitlines()]
    assert "prompt" not in accepted
    assert json.loads(ended["prompt"])[0]["parts"][0]["content"] == "hello world"
    assert json.loads(ended["output"])[0]["parts"][0]["content"] == "w0 w1 "


async def test_a_tenant_is_forgotten(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Results, dead letters and what is open, of this tenant alone."""
    blue, green = (("x-tenant-id", "blue"),), (("x-tenant-id", "green"),)
    answers = []
    for who in (blue, green):
        call = gateway.inference.Generate(request(stop=max_tokens(1)), metadata=who)
        led = await scheduler.next()
        await led.prompt()
        await led.tokens(1)
        await led.finish(FinishReason.LENGTH)
        answers.append(await call)
    call = gateway.inference.Generate(request(), metadata=blue)
    dead = await scheduler.next()
    await dead.prompt()
    await dead.finish(FinishReason.ERROR, failure=Failure("INTERNAL", "x", "POISON_REQUEST", {}))
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    open_call = gateway.inference.GenerateStream(request(), metadata=blue)
    led = await scheduler.next()
    forgetting = gateway.admin.Forget(admin.ForgetRequest(tenant="blue"))
    assert await led.cancel_flag() == "to be forgotten"
    await led.finish(FinishReason.CANCELLED)
    assert (await forgetting).requests == 3
    open_call.cancel()
    for answer, who, is_there in ((answers[0], blue, False), (answers[1], green, True)):
        look = gateway.inference.GetRequest(
            pb.GetRequestRequest(request_id=answer.request_id), metadata=who
        )
        if is_there:
            assert (await look).request_id == answer.request_id
            continue
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await look
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    one = admin.ForgetRequest(request_id=answers[1].request_id)
    assert (await gateway.admin.Forget(one)).requests == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.Forget(one)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
