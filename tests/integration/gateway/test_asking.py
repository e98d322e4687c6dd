"""Calls that are opened and never ask, or ask late."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from gateway import asking
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import kinds, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import error_info, violations
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

SERVICE = "headrace.v1.InferenceService"
UNARY = (f"/{SERVICE}/Generate", f"/{SERVICE}/ListModels", "/grpc.health.v1.Health/Check")
STREAMS = (f"/{SERVICE}/GenerateStream", f"/{SERVICE}/Attach", "/grpc.health.v1.Health/Watch")
# The gateway answers its id as soon as it has begun with a call.
ECHO = (("x-request-id", "mine"),)


def opened(gateway: RunningGateway, method: str) -> "grpc.aio.StreamStreamCall":
    """A call without a message so far; whether one or many are asked or answered is the same on the wire."""
    return gateway.channel.stream_stream(method)(metadata=ECHO)


async def refusal(call: "grpc.aio.StreamStreamCall") -> grpc.aio.AioRpcError:
    """How it ends."""
    async with asyncio.timeout(scaled(60)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(call))
    return caught.value


async def counted(gateway: RunningGateway, method: str, code: str) -> None:
    """A scrape tells that one call ended so, a moment behind its end."""
    rpc = f'rpc_method="{method[1:]}",rpc_response_status_code="{code}",rpc_system_name="grpc"'
    line = f'rpc_server_call_duration_seconds_count{{error_type="{code}",{rpc}}} 1.0'
    async with asyncio.timeout(scaled(60)):
        while line not in gateway.runtime.metrics.scrape()[0].decode():  # noqa: ASYNC110 - as any scraper does
            await asyncio.sleep(0.01)


async def test_a_call_that_never_asks_ends(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a deadline of ours, whatever it was opened for, and it is counted; the connection goes on."""
    monkeypatch.setattr(asking, "ASK_WITHIN_S", 0.2)
    calls = {method: opened(gateway, method) for method in (*UNARY, *STREAMS)}
    for method, call in calls.items():
        error = await refusal(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error_info(error).reason == "MESSAGE_TOO_SLOW"
        if SERVICE in method:
            await counted(gateway, method, "DEADLINE_EXCEEDED")
    monkeypatch.undo()
    assert (await gateway.inference.ListModels(pb.ListModelsRequest())).models


async def test_a_call_that_ends_without_a_message_is_refused(gateway: RunningGateway) -> None:
    """It would otherwise be open for as long as its connection."""
    for method in (*UNARY, *STREAMS):
        call = opened(gateway, method)
        await call.done_writing()
        error = await refusal(call)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violations(error) == {"request": "is missing"}


async def test_what_is_no_message_is_refused_by_health_too(gateway: RunningGateway) -> None:
    """As by our own services."""
    call = opened(gateway, UNARY[-1])
    await call.write(b"\x0a\xff")
    error = await refusal(call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_one_who_leaves_before_asking_is_no_failure(
    gateway: RunningGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is counted as the cancelled call that it is, and nothing is logged as an error."""
    for method in STREAMS[:2]:
        call = opened(gateway, method)
        await call.initial_metadata()
        call.cancel()
        await counted(gateway, method, "CANCELLED")
    said = "".join(capfd.readouterr())
    assert "Traceback" not in said, said
    assert "call failed" not in said, said


async def test_one_who_asks_late_is_answered(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """A call may be open for a while before its message comes."""
    for method in (UNARY[0], STREAMS[0]):
        call = opened(gateway, method)
        await call.initial_metadata()
        await call.write(request().SerializeToString())
        await call.done_writing()
        assert [answer async for answer in call]
    check = opened(gateway, UNARY[-1])
    await check.write(health_pb2.HealthCheckRequest().SerializeToString())
    assert [answer async for answer in check]


async def test_who_has_asked_may_wait_longer(
    scheduler: ScriptedScheduler,
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound ends with the message: an answer may take any time."""
    monkeypatch.setattr(asking, "ASK_WITHIN_S", scaled(2.0))
    async with running_gateway(redis_server.url, tmp_path, keepalive_s=scaled(0.5)) as gateway:
        call = gateway.inference.GenerateStream(request())
        led = await scheduler.next()
        left, seen = 6, []
        async for event in call:
            seen += kinds([event])
            left -= seen[-1] == "keepalive"
            if not left and seen[-1] == "keepalive":
                await led.prompt()
                await led.finish()
        assert seen[-1] == "finish"
