"""Idempotency keys: one execution for each key, whatever is repeated, lost or killed in between (B26)."""

import asyncio

import grpc
import grpc.aio
import pytest

from common import keys
from common.domain import FinishReason, RequestId
from common.records import Failure
from common.streams import following, idempotency
from common.wire.digest import body_digest
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.keyed_requests import (
    NAME,
    answer,
    claimed,
    followed,
    is_confirmed,
    keyed,
    nothing_waits,
    refused,
)
from tests.integration.gateway.requests import drain, ids_of, request, text_of
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words
from tests.integration.gateway.statuses import details_of, error_info
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_ten_at_once_are_one(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Of ten equal calls at two gateways one is executed; all of them and a later one get the same bytes."""
    message = keyed()
    calls = [g.inference.Generate(message) for g in (gateway, other_gateway) * 5]
    led = await scheduler.next()
    await followed(led, 10)
    await answer(led)
    answers = await asyncio.gather(*calls)
    again = await other_gateway.inference.Generate(message)
    assert {one.SerializeToString() for one in [*answers, again]} == {again.SerializeToString()}
    assert again.choices[0].text == "".join(words(0, 3))
    assert again.model_revision == "r1"
    await nothing_waits(scheduler)


async def test_every_call_that_generates_replays(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A stream, a batch and a call whose key is in the metadata find what the first call left."""
    call = gateway.inference.Generate(keyed(output=gen.OutputOptions(token_ids=False)))
    await answer(await scheduler.next())
    first = await call
    message = keyed(output=gen.OutputOptions(token_ids=False))
    events = await drain(other_gateway.inference.GenerateStream(message))
    assert events[0].accepted.request_id == first.request_id
    assert events[0].accepted.seed == first.seed
    assert text_of(events) == first.choices[0].text
    assert not ids_of(events)
    batch = pb.BatchGenerateRequest(requests=[message, message])
    outcomes = [outcome async for outcome in gateway.inference.BatchGenerate(batch)]
    assert [outcome.response for outcome in outcomes] == [first, first]
    message.ClearField("idempotency_key")
    metadata = (("idempotency-key", "k"),)
    assert await gateway.inference.Generate(message, metadata=metadata) == first
    await nothing_waits(scheduler)


async def test_a_batch_has_no_key_of_its_own(gateway: RunningGateway) -> None:
    """The metadata's key would be that of each request."""
    batch = pb.BatchGenerateRequest(requests=[request()])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in gateway.inference.BatchGenerate(
            batch, metadata=(("idempotency-key", "k"),)
        ):
            pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_another_body_is_refused(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """While the first runs and after it ended; the refusal names it and promises nothing of a retry."""
    call = gateway.inference.Generate(keyed())
    led = await scheduler.next()
    other = keyed("world hello")
    running = await refused(other_gateway.inference.Generate(other))
    await answer(led)
    await call
    ended = await refused(gateway.inference.Generate(other))
    for error in (running, ended):
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
        assert error_info(error).reason == "IDEMPOTENCY_KEY_REUSED"
        assert error_info(error).metadata["request_id"] == str(led.id)
        assert "RetryInfo" not in details_of(error)
    await nothing_waits(scheduler)


async def test_tenants_do_not_share_keys(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The same key and body of two tenants are two requests."""
    calls = [
        gateway.inference.Generate(keyed(), metadata=(("x-tenant-id", tenant),))
        for tenant in ("one", "two")
    ]
    led = [await scheduler.next() for _ in calls]
    assert {one.request.tenant for one in led} == {"one", "two"}
    for one in led:
        await answer(one)
    answers = await asyncio.gather(*calls)
    assert {one.request_id for one in answers} == {str(one.id) for one in led}


async def test_labels_and_time_limits_are_not_compared(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A retry with less time left, or another trace label, is the same request."""
    message = keyed(labels={"try": "1"}, client_request_id="a")
    message.timeout.FromSeconds(50)
    call = gateway.inference.Generate(message)
    await answer(await scheduler.next())
    first = await call
    again = keyed(labels={"try": "2"}, client_request_id="b")
    again.timeout.FromSeconds(20)
    assert await gateway.inference.Generate(again) == first


async def test_a_failure_replays(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """With the same status, details and figures."""
    call = gateway.inference.Generate(keyed())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(1)
    failure = Failure("INTERNAL", "broke workers", "POISON_REQUEST", {"losses": "3"})
    await led.finish(FinishReason.ERROR, failure=failure)
    first = await refused(call)
    again = await refused(other_gateway.inference.Generate(keyed()))
    assert again.code() is first.code() is grpc.StatusCode.INTERNAL
    assert dict(again.trailing_metadata()) == dict(first.trailing_metadata())
    await nothing_waits(scheduler)


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE])
async def test_what_has_no_result_gives_its_key_back(
    gateway: RunningGateway, scheduler: ScriptedScheduler, reason: FinishReason
) -> None:
    """After a cancellation or an expiry the next use runs anew, with any body."""
    call = gateway.inference.Generate(keyed())
    await answer(await scheduler.next(), 1, reason)
    await refused(call)
    call = gateway.inference.Generate(keyed("world"))
    second = await scheduler.next()
    await answer(second)
    assert (await call).request_id == str(second.id)


async def test_a_retry_waits_for_the_end_of_what_is_being_cancelled(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A client that hung up and comes again with its key is not given the cancellation of its first call."""
    first = gateway.inference.GenerateStream(keyed())
    led = await scheduler.next()
    first.cancel()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag() == "abandoned"
    call = gateway.inference.Generate(keyed())
    await led.finish(FinishReason.CANCELLED)
    second = await scheduler.next()
    await answer(second)
    assert (await call).request_id == str(second.id) != str(led.id)


async def test_it_is_cancelled_when_all_have_left(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Who attaches by the key is a follower like any other."""
    calls = [g.inference.GenerateStream(keyed()) for g in (gateway, other_gateway)]
    led = await scheduler.next()
    await followed(led, 2)
    calls[0].cancel()
    await followed(led, 1)
    record = await following.read_record(led.node, led.id, bound_s=10)
    assert record is not None
    assert not record.cancel
    calls[1].cancel()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag() == "abandoned"


async def test_a_claim_without_admission_is_completed(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Whoever comes after a gateway that died in between admits the request, under the id that was claimed."""
    message = keyed()
    dead = RequestId.make("tiny", 1)
    await idempotency.claim(scheduler.node, NAME, dead, body_digest(message), bound_s=10)
    error = await refused(gateway.inference.Generate(keyed("world")))
    assert error_info(error).metadata["request_id"] == str(dead)
    calls = [gateway.inference.Generate(message) for _ in range(3)]
    led = await scheduler.next()
    assert led.id == dead
    await followed(led, 3)
    await answer(led)
    answers = await asyncio.gather(*calls)
    assert {one.request_id for one in answers} == {str(dead)}
    assert {one.seed for one in answers} == {led.request.sampling.seed}
    await nothing_waits(scheduler)


async def test_a_refused_request_leaves_no_claim(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A key that was used for nothing is free, also for another body."""
    error = await refused(gateway.inference.Generate(keyed(hold=False)))
    assert error_info(error).reason == "NO_WORKER"
    await claimed(scheduler, lambda claim: claim is None)
    call = gateway.inference.Generate(keyed("world"))
    await answer(await scheduler.next())
    await call


async def test_the_key_is_free_once_the_result_is_gone(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The claim outlives the record; with the record gone the next use runs anew, with any body."""
    call = gateway.inference.Generate(keyed())
    led = await scheduler.next()
    await answer(led)
    await call
    await claimed(scheduler, is_confirmed)

    async def life_ms(key: str) -> int:
        left: int = await scheduler.node.call(lambda client: client.pttl(key))
        return left

    claim_ms = await life_ms(NAME.place)
    assert claim_ms > keys.LONGEST_LIFE_MS + keys.RESULT_TTL_MS
    assert 0 < await life_ms(keys.record(led.id)) < claim_ms
    record = keys.record(led.id)
    await scheduler.node.call(lambda client: client.pexpire(record, 0))
    call = gateway.inference.Generate(keyed("world"))
    second = await scheduler.next()
    await answer(second)
    assert (await call).request_id == str(second.id) != str(led.id)
    replay = await gateway.inference.Generate(keyed("world"))
    assert replay.request_id == str(second.id)
