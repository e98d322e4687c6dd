"""Operators look at requests that were set aside, and run one again."""

import asyncio

import grpc
import grpc.aio
import pytest

from common.domain import FinishReason, Usage
from common.records import Failure, FinishRecord, Progress, Timings
from common.request_status import RequestStatus
from common.streams import ownership
from common.wire.records import TerminalRecord, encode_terminal
from headrace.v1 import admin_service_pb2 as pb
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import attached, drain, max_tokens, request, text_of
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler
from tests.integration.gateway.statuses import bad_fields, error_info

pytestmark = pytest.mark.integration

POISON = Failure("INTERNAL", "3 workers were lost while running the request", "POISON_REQUEST")


async def bury(led: Led) -> None:
    """A worker is lost, and the request with it."""
    await ownership.requeue(led.node, led.id, led.epoch, 1, 2, "worker lost")
    finish = FinishRecord(0, 0, FinishReason.ERROR, failure=POISON)
    await led.append(finish)
    terminal = TerminalRecord(
        RequestStatus.DEAD, Progress(), Usage(), Timings(), seed=1, failure=POISON
    )
    dead = await ownership.finish(
        led.node, led.id, led.epoch, RequestStatus.DEAD, encode_terminal(terminal), POISON.reason
    )
    assert dead == ownership.Done()


async def die(gateway: RunningGateway, scheduler: ScriptedScheduler, **fields: object) -> str:
    """A request that dies; its id."""
    call = gateway.inference.GenerateStream(request(**fields))
    led = await scheduler.next()
    await bury(led)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert error_info(caught.value).reason == "POISON_REQUEST"
    return str(led.id)


async def test_the_dead_are_shown_as_dead(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """GetRequest says DEAD and why; the letter has its history; lists leave nothing out and are newest first."""
    ids = [await die(gateway, scheduler) for _ in range(3)]
    shown = await gateway.inference.GetRequest(
        inference_service_pb2.GetRequestRequest(request_id=ids[0])
    )
    assert shown.status == gen.REQUEST_STATUS_DEAD
    assert (shown.error.code, shown.error.reason) == (13, "POISON_REQUEST")
    listed = (await gateway.admin.ListDeadLetters(pb.ListDeadLettersRequest())).dead_letters
    assert [letter.request_id for letter in listed] == ids[::-1]
    found = await gateway.admin.GetDeadLetter(pb.GetDeadLetterRequest(request_id=ids[1]))
    letter = found.dead_letter
    assert letter == listed[1]
    assert (letter.model, letter.tenant, letter.reason) == ("tiny", "default", "POISON_REQUEST")
    (attempt,) = letter.attempts
    assert (attempt.worker_id, attempt.tokens, attempt.outcome) == ("w1", 2, "worker lost")
    assert attempt.dispatched_at.ToNanoseconds() <= letter.died_at.ToNanoseconds()


async def test_pages(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """Page after page gives every letter once, by model too; an empty page ends it; foreign tokens are refused."""
    ids = [await die(gateway, scheduler) for _ in range(5)]
    wanted, seen = pb.ListDeadLettersRequest(model="tiny", page_size=2), []
    while True:
        page = await gateway.admin.ListDeadLetters(wanted)
        assert len(page.dead_letters) <= 2
        seen += [letter.request_id for letter in page.dead_letters]
        if not page.next_page_token:
            break
        wanted.page_token = page.next_page_token
    assert seen == ids[::-1]
    for token in ("%%%", "bm9uc2Vuc2U="):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.admin.ListDeadLetters(pb.ListDeadLettersRequest(page_token=token))
        assert bad_fields(caught.value) == {"page_token"}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.ListDeadLetters(pb.ListDeadLettersRequest(model="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("text", ["nonsense", "tiny:0:" + "0" * 32, ""])
async def test_unknown_letters(gateway: RunningGateway, text: str) -> None:
    """There is no letter of a request that did not die, and none of what is no id."""
    for call, wanted in (
        (gateway.admin.GetDeadLetter, pb.GetDeadLetterRequest(request_id=text)),
        (gateway.admin.ReplayDeadLetter, pb.ReplayDeadLetterRequest(request_id=text)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(wanted)  # type: ignore[operator]
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert error_info(caught.value).reason == "DEAD_LETTER_NOT_FOUND"


async def test_replay(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """The same body under a new id, for the same tenant, with nobody following yet; the letter stays for another time."""
    dead = await die(gateway, scheduler, stop=max_tokens(4), labels={"a": "b"})
    replayed = await gateway.admin.ReplayDeadLetter(pb.ReplayDeadLetterRequest(request_id=dead))
    assert replayed.request_id != dead
    led = await scheduler.next()
    assert str(led.id) == replayed.request_id
    assert led.request.prompt_token_ids == (1, 3, 4)
    assert (led.request.stop.max_tokens, dict(led.request.labels)) == (4, {"a": "b"})
    await led.prompt()
    await led.tokens(4)
    call = gateway.inference.Attach(
        inference_service_pb2.AttachRequest(request_id=replayed.request_id)
    )
    events = asyncio.create_task(attached(call))
    await led.finish(FinishReason.LENGTH)
    assert text_of(await events) == "w0 w1 w2 w3 "
    again = await gateway.admin.ReplayDeadLetter(pb.ReplayDeadLetterRequest(request_id=dead))
    assert again.request_id not in (dead, replayed.request_id)


async def test_a_replay_is_admitted_like_any_request(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Where the caller did not want to wait for a worker and there is none, a replay is refused."""
    await scheduler.snapshot(num_workers=1)
    dead = await die(gateway, scheduler, hold=False)
    await scheduler.snapshot(num_workers=0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.ReplayDeadLetter(pb.ReplayDeadLetterRequest(request_id=dead))
    assert error_info(caught.value).reason == "NO_WORKER"
