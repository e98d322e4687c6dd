"""Cancellation, disconnection, deadlines: what the gateway tells the request's record, and its client."""

import asyncio
import time

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from common.domain import FinishReason
from common.records import Failure
from common.request_status import RequestStatus
from common.streams.following import read_record
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.keyed_requests import followed
from tests.integration.gateway.requests import attached, drain, request, text_of
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import error_info
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


async def test_cancel_is_recorded_and_ends_the_stream(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The flag reaches the owner; the stream ends CANCELLED behind its finish, usage in the trailer."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    answer = await gateway.inference.Cancel(
        pb.CancelRequest(request_id=str(led.id), reason="no need")
    )
    assert answer.cancelling
    assert answer.status == gen.REQUEST_STATUS_RUNNING
    assert await led.cancel_flag() == "no need"
    await led.finish(FinishReason.CANCELLED)
    seen: list[pb.GenerateStreamResponse] = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call, seen)
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert seen[-1].finish.finish_reason == gen.FINISH_REASON_CANCELLED
    assert seen[-1].usage.completion_tokens == 2
    assert dict(caught.value.trailing_metadata())["x-usage-completion-tokens"] == "2"
    again = await gateway.inference.Cancel(pb.CancelRequest(request_id=str(led.id)))
    assert not again.cancelling
    assert again.status == gen.REQUEST_STATUS_CANCELLED


async def test_a_client_that_hangs_up_cancels_what_nobody_follows(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The record is flagged; with a second follower it is not."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    other = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id)))
    await anext(aiter(other))
    call.cancel()
    await led.prompt()
    await led.tokens(1)
    second = await anext(aiter(other))
    assert second.event.WhichOneof("event") == "prompt"
    record = await read_record(led.node, led.id, bound_s=10)
    assert record is not None
    assert not record.cancel
    other.cancel()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag() == "abandoned"


async def test_a_resumable_request_outlives_its_client(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Nobody follows it, nobody cancels it, and Attach finds everything."""
    call = gateway.inference.GenerateStream(request(resumable=True))
    led = await scheduler.next()
    call.cancel()
    await led.prompt()
    await led.tokens(2)
    await led.finish()
    events = await attached(gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id))))
    assert text_of(events) == "w0 w1 "


async def test_the_deadline_of_the_call_is_the_requests(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The earlier of call deadline and timeout is stored; a client that gives up then cancels nothing."""
    call = gateway.inference.GenerateStream(request(timeout=Duration(seconds=100)), timeout=3)
    led = await scheduler.next()
    assert led.entry.deadline_ms - led.entry.admitted_ms <= 3000
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await led.finish(FinishReason.DEADLINE)
    looked = await gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    assert looked.status == gen.REQUEST_STATUS_EXPIRED


async def test_expiry_names_its_stage(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """DEADLINE_EXCEEDED with the stage that the request had reached."""
    call = gateway.inference.GenerateStream(request(timeout=Duration(seconds=100)))
    led = await scheduler.next()
    await led.finish(FinishReason.DEADLINE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error_info(caught.value).metadata["stage"] == "queue"


async def test_a_failure_keeps_its_status(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """What the scheduler stored is what the client hears, from stream, unary call and look-up."""
    failure = Failure("INTERNAL", "broke workers", "POISON_REQUEST", {"losses": "3"})
    call = gateway.inference.Generate(request())
    led = await scheduler.next()
    await led.prompt()
    await led.finish(FinishReason.ERROR, failure=failure)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert error_info(caught.value).reason == "POISON_REQUEST"
    looked = await gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    assert looked.error.reason == "POISON_REQUEST"
    assert looked.status == gen.REQUEST_STATUS_FAILED
    record = await read_record(led.node, led.id, bound_s=10)
    assert record is not None
    assert record.status is RequestStatus.FAILED


async def test_get_request_while_it_waits_and_after(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Status, times, what it waits for; then the result."""
    call = gateway.inference.GenerateStream(request(priority=gen.PRIORITY_HIGH))
    accepted = (await anext(aiter(call))).accepted
    name = pb.GetRequestRequest(request_id=accepted.request_id)
    waiting = await gateway.inference.GetRequest(name)
    assert waiting.status == gen.REQUEST_STATUS_QUEUED
    assert waiting.priority == gen.PRIORITY_HIGH
    assert "scheduler" in waiting.waiting_for
    assert waiting.model_revision == "r1"
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    await led.finish()
    await drain(call)
    done = await gateway.inference.GetRequest(name)
    assert done.status == gen.REQUEST_STATUS_FINISHED
    assert done.result.choices[0].text == "w0 w1 "
    assert done.usage == gen.Usage(prompt_tokens=3, completion_tokens=2)


async def test_who_left_while_the_gateway_slept_may_be_elsewhere(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A client that took it for gone has the grace to come back; one that hangs up later is believed."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await followed(led, 1)
    call.cancel()
    time.sleep(4.5)  # noqa: ASYNC251 - the whole process sleeps, as on SIGSTOP
    await followed(led, 0)
    other = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id)))
    await anext(aiter(other))
    record = await read_record(led.node, led.id, bound_s=10)
    assert record is not None
    assert not record.cancel
    await asyncio.sleep(scaled(5.5))  # it has been awake for longer than what its sleep explains
    other.cancel()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag() == "abandoned"
