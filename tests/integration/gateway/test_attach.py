"""Following a request from any gateway and any seq: no gap, no repeat, whatever happened in between."""

import asyncio
import contextlib
import copy
import dataclasses
import random

import grpc
import grpc.aio
import pytest

from common.domain import FinishReason
from common.errors import DAMAGED_LOG
from common.records import Failure, FinishRecord, TokensRecord
from headrace.client.cursor import Cursor
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import (
    assert_gapless,
    attached,
    drain,
    kinds,
    max_tokens,
    request,
    text_of,
)
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler, words
from tests.integration.gateway.statuses import bad_fields
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


async def started(
    gateway: RunningGateway, scheduler: ScriptedScheduler, **fields: object
) -> tuple[grpc.aio.UnaryStreamCall, Led]:
    """A stream of which five tokens were generated: three, a checkpoint, two."""
    call = gateway.inference.GenerateStream(request(**fields))
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(3)
    await led.checkpoint()
    await led.tokens(2)
    return call, led


@pytest.mark.parametrize("from_seq", [0, 2, 3, 4, 5])
async def test_attach_while_it_runs(
    gateway: RunningGateway,
    other_gateway: RunningGateway,
    scheduler: ScriptedScheduler,
    from_seq: int,
) -> None:
    """Own log and foreign log give the same tokens from any seq: checkpoint, then log, then live."""
    call, led = await started(gateway, scheduler)
    requests = pb.AttachRequest(request_id=str(led.id), from_seq=from_seq)
    calls = [g.inference.Attach(requests) for g in (gateway, other_gateway)]
    first = [await anext(aiter(one)) for one in calls]
    await led.tokens(2)
    await led.finish()
    for one, answer in zip(calls, first, strict=True):
        assert answer.event.accepted.request_id == str(led.id)
        assert answer.event.accepted.seed == led.request.sampling.seed
        events = await attached(one)
        assert assert_gapless(events, from_seq) == 7
        assert text_of(events) == "".join(words(from_seq, 7 - from_seq))
        assert events[-1].finish.last
        assert events[-1].usage.completion_tokens == 7
    assert text_of(await drain(call)) == "".join(words(0, 7))


async def reading_clients(scheduler: ScriptedScheduler, number: int) -> None:
    """Wait until so many connections are blocked in a read; each reader is one, but for moments."""
    async with asyncio.timeout(scaled(60)):
        # Redis' doing: there is no event to wait for.
        while True:
            found = await scheduler.node.call(lambda client: client.info("clients"))
            if found["blocked_clients"] == number:
                return
            await asyncio.sleep(0.02)


async def test_followers_share_the_reader_of_a_foreign_log(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """However many follow at another gateway, it reads the log once; when they have left, no more."""
    call, led = await started(gateway, scheduler)
    await reading_clients(scheduler, 2)
    message = pb.AttachRequest(request_id=str(led.id))
    calls = [other_gateway.inference.Attach(message) for _ in range(5)]
    for one in calls:
        await anext(aiter(one))
    await reading_clients(scheduler, 3)
    await led.tokens(2)
    await led.finish()
    for one in calls:
        assert text_of(await attached(one)) == "".join(words(0, 7))
    assert text_of(await drain(call)) == "".join(words(0, 7))
    await reading_clients(scheduler, 2)


@pytest.mark.parametrize("from_seq", [0, 3, 5])
async def test_attach_after_the_end(
    gateway: RunningGateway,
    other_gateway: RunningGateway,
    scheduler: ScriptedScheduler,
    from_seq: int,
) -> None:
    """The terminal record replays from any seq and ends with the request's status."""
    call, led = await started(gateway, scheduler)
    await led.finish()
    await drain(call)
    again = other_gateway.inference.Attach(
        pb.AttachRequest(request_id=str(led.id), from_seq=from_seq)
    )
    events = await attached(again)
    assert text_of(events) == "".join(words(from_seq, 5 - from_seq))
    assert [event.seq for event in events if not event.HasField("delta")] == [from_seq] * 2 + [5]
    assert events[-1].finish.last
    assert await again.code() is grpc.StatusCode.OK


async def refused(gateway: RunningGateway, led: Led, from_seq: int) -> str:
    """Why it cannot be followed from there; asserts which field is named."""
    behind = pb.AttachRequest(request_id=str(led.id), from_seq=from_seq)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attached(gateway.inference.Attach(behind))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad_fields(caught.value) == {"from_seq"}
    return caught.value.details() or ""


@pytest.mark.parametrize(
    "reason",
    [FinishReason.STOP, FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.ERROR],
)
async def test_attach_behind_the_last_token_is_refused(
    gateway: RunningGateway, scheduler: ScriptedScheduler, reason: FinishReason
) -> None:
    """INVALID_ARGUMENT says how many tokens a request has, however it ended; from its last token on it is followed."""
    call, led = await started(gateway, scheduler)
    await led.finish(reason)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await drain(call)
    assert "at most 5," in await refused(gateway, led, 6)
    again = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id), from_seq=5))
    assert (await anext(aiter(again))).event.HasField("accepted")
    again.cancel()


async def test_attach_behind_all_that_may_come_is_refused(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A running request is waited for from any seq that it may reach, and from no other."""
    call, led = await started(gateway, scheduler, stop=max_tokens(8))
    assert "at most 8," in await refused(gateway, led, 9)
    waiting = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id), from_seq=8))
    await anext(aiter(waiting))
    waiting.cancel()
    call.cancel()


async def test_what_is_missing_on_record_is_no_mistake_of_the_client(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A request that failed over a damaged log has lost tokens that its client knows: it is told so."""
    call, led = await started(gateway, scheduler)
    await led.finish(FinishReason.ERROR, failure=Failure("INTERNAL", "a gap", DAMAGED_LOG))
    with pytest.raises(grpc.aio.AioRpcError):
        await drain(call)
    again = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id), from_seq=6))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attached(again)
    assert caught.value.code() is grpc.StatusCode.INTERNAL


async def test_attach_after_cancellation_ends_cancelled(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The replayed stream has the text, and then the status of the first one."""
    call, led = await started(gateway, scheduler)
    await led.finish(FinishReason.CANCELLED)
    with pytest.raises(grpc.aio.AioRpcError):
        await drain(call)
    again = gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attached(again)
    assert caught.value.code() is grpc.StatusCode.CANCELLED


async def test_a_takeover_in_between_is_not_seen(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """What a fenced writer appends late reaches nobody, in the live stream and in a replay."""
    call, led = await started(gateway, scheduler)
    late = pb.AttachRequest(request_id=str(led.id))
    zombie = dataclasses.replace(led, progress=copy.deepcopy(led.progress))
    await led.fence()
    await zombie.append(TokensRecord(5, 0, (7, 7, 7), "xyz", (1, 1, 1)))
    other = other_gateway.inference.Attach(late)
    await anext(aiter(other))
    await led.tokens(2)
    await led.finish()
    assert text_of(await drain(call)) == "".join(words(0, 7))
    assert text_of(await attached(other)) == "".join(words(0, 7))


async def test_another_tenant_finds_nothing(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Attach, Cancel and GetRequest answer as if the request did not exist, and touch nothing."""
    call, led = await started(gateway, scheduler)
    stranger = (("x-tenant-id", "stranger"),)
    name = str(led.id)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attached(
            gateway.inference.Attach(pb.AttachRequest(request_id=name), metadata=stranger)
        )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    for method, message in (
        (gateway.inference.Cancel, pb.CancelRequest(request_id=name)),
        (gateway.inference.GetRequest, pb.GetRequestRequest(request_id=name)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(message, metadata=stranger)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    await led.finish()
    assert text_of(await drain(call)) == "".join(words(0, 5))


async def test_a_lost_log_is_mended_from_the_record(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Tokens that never reached the log come from the checkpoint, in their place."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(1)
    led.progress.add(led.next_tokens(2))  # generated, checkpointed, and gone from the log
    await led.checkpoint()
    await led.tokens(1)
    await led.finish()
    events = await drain(call)
    assert assert_gapless(events) == 4
    assert text_of(events) == "".join(words(0, 4))


async def test_an_end_that_only_the_record_tells(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A finish that is missing in the log is found in the terminal record."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    await led.finish(logged=False)
    events = await drain(call)
    assert text_of(events) == "".join(words(0, 2))
    assert events[-1].finish.finish_reason == gen.FINISH_REASON_STOP


async def test_the_gateway_dies_and_the_client_goes_on_elsewhere(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A stopping gateway says UNAVAILABLE, cancels nothing, and the next one has every token."""
    call, led = await started(gateway, scheduler)
    stream = aiter(call)
    seen = [await anext(stream)]
    while assert_gapless(seen) < 5:
        seen.append(await anext(stream))
    stopping = asyncio.create_task(gateway.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(stream)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    again = other_gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id), from_seq=5))
    first = await anext(aiter(again))
    await led.tokens(1)
    await led.finish()
    events = [first.event, *await attached(again)]
    assert kinds(events)[0] == "accepted"
    assert assert_gapless(events, 5) == 6
    await stopping


async def test_attaching_again_and_again_while_tokens_flow(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """From random seqs at random moments, on both gateways, across checkpoints: always exactly the rest."""
    total = 40
    dice = random.Random(11)
    call = gateway.inference.GenerateStream(request(stop=max_tokens(total)))
    led = await scheduler.next()
    await led.prompt()

    async def follow(number: int) -> None:
        from_seq = dice.randint(0, led.progress.next_seq)
        place = (gateway, other_gateway)[number % 2]
        message = pb.AttachRequest(request_id=str(led.id), from_seq=from_seq)
        events = await attached(place.inference.Attach(message))
        assert assert_gapless(events, from_seq) == total
        assert text_of(events) == "".join(words(from_seq, total - from_seq))

    async with asyncio.TaskGroup() as tasks:
        number = 0
        while led.progress.next_seq < total:
            await led.tokens(dice.choice([1, 2]) if led.progress.next_seq < total - 2 else 1)
            if dice.random() < 0.6:
                tasks.create_task(follow(number))
                number += 1
            if dice.random() < 0.3:
                await led.checkpoint()
        await led.finish()
    assert number > 10
    assert text_of(await drain(call)) == "".join(words(0, total))


async def test_a_record_that_ended_tells_all_that_the_body_told(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Attach and GetRequest answer revision, seed and wishes of the request as the first stream did."""
    call, led = await started(gateway, scheduler, output=gen.OutputOptions(token_ids=False))
    await led.finish()
    first = await drain(call)
    again = await attached(
        other_gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id)))
    )
    assert again[0] == first[0]
    assert again[0].accepted.model_revision == "r1"
    looked = await other_gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    assert looked.model_revision == looked.result.model_revision == "r1"
    assert looked.result.choices[0].text == text_of(first)
    for events in (first, again):
        assert not any(event.delta.token_ids for event in events)
    assert not looked.result.choices[0].token_ids


@pytest.mark.parametrize("together", [True, False])
async def test_a_cut_before_the_finish_repeats_no_text(
    gateway: RunningGateway,
    other_gateway: RunningGateway,
    scheduler: ScriptedScheduler,
    together: bool,
) -> None:
    """Text that the end releases is a delta of its own, which the client's cursor knows when it comes again."""
    call, led = await started(gateway, scheduler)
    if not together:
        await led.finish(text="tail")
    else:
        tokens = led.next_tokens(1)
        await led.append(tokens, FinishRecord(6, 0, FinishReason.STOP, text="tail"))
        await led.settle(FinishReason.STOP)
    cursor, seen = Cursor(), []
    async for event in call:
        seen.append(cursor.take(event))
        if event.HasField("delta") and not event.count:
            break
    call.cancel()
    assert seen[-1].delta.text == "tail"
    cursor.reattached()
    name = pb.AttachRequest(request_id=str(led.id), from_seq=cursor.next_seq)
    seen += map(cursor.take, await attached(other_gateway.inference.Attach(name)))
    assert text_of([event for event in seen if event is not None]) == (
        "".join(words(0, cursor.next_seq)) + "tail"
    )
    assert cursor.answered
