"""Idempotency keys where answers get lost: what was admitted once is never admitted again, and nothing is left over."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from common import keys
from common.domain import FinishReason, RequestId
from common.streams import idempotency
from common.streams.idempotency import Claim
from common.streams.node import Node
from common.streams.scripts import script_digest
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
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
from tests.integration.gateway.requests import max_tokens
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import retry_s
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import TcpProxy, running_proxy
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NUM_LOSSES = 40
IDS = [RequestId.make("tiny", 1) for _ in range(3)]


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[TcpProxy]:
    """Between the gateway and Redis."""
    with running_proxy(redis_server.port) as started:
        yield started


@pytest.fixture
async def lossy(
    proxy: TcpProxy, scheduler: ScriptedScheduler, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    """A gateway behind the proxy that abandons what nobody follows after a moment."""
    url = f"redis://127.0.0.1:{proxy.port}/0"
    async with running_gateway(url, tmp_path, resume_grace_s=0.3) as running:
        yield running


@pytest.mark.parametrize("script", ["claim_key", "admit", "confirm_key"])
async def test_each_script_is_safe_to_repeat(
    lossy: RunningGateway, proxy: TcpProxy, scheduler: ScriptedScheduler, script: str
) -> None:
    """Applied three times because two answers are lost, it does what it does once."""
    proxy.drop_replies(script_digest(script).encode(), count=2)
    call = lossy.inference.Generate(keyed())
    led = await scheduler.next()
    await answer(led)
    first = await call
    async with asyncio.timeout(scaled(60)):
        while proxy.num_dropped < 2:  # noqa: ASYNC110 - the proxy tells nobody
            await asyncio.sleep(0.01)
    await claimed(scheduler, is_confirmed)
    assert first.request_id == str(led.id)
    assert await lossy.inference.Generate(keyed()) == first
    await nothing_waits(scheduler)


async def test_a_retry_goes_on_with_what_was_admitted(
    lossy: RunningGateway,
    gateway: RunningGateway,
    proxy: TcpProxy,
    scheduler: ScriptedScheduler,
) -> None:
    """A caller told UNAVAILABLE although the request was admitted finds it by his key, and nothing cancels it."""
    proxy.drop_replies(script_digest("admit").encode(), count=10_000)
    error = await refused(lossy.inference.Generate(keyed()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_s(error) > 0
    call = gateway.inference.Generate(keyed())
    led = await scheduler.next()
    proxy.pass_through()
    await followed(led, 1)
    await answer(led)
    assert (await call).request_id == str(led.id)
    await nothing_waits(scheduler)


async def test_without_a_retry_it_is_abandoned(
    lossy: RunningGateway, proxy: TcpProxy, scheduler: ScriptedScheduler
) -> None:
    """A request that was admitted for a follower who never came ends after the grace, and gives its key back."""
    proxy.drop_replies(script_digest("admit").encode(), count=10_000)
    await refused(lossy.inference.Generate(keyed()))
    proxy.pass_through()
    led = await scheduler.next()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag() == "abandoned"
    await led.finish(FinishReason.CANCELLED)
    call = lossy.inference.Generate(keyed())
    second = await scheduler.next()
    await answer(second)
    assert (await call).request_id == str(second.id) != str(led.id)


async def test_others_go_on_with_a_claim_whose_answer_is_lost(
    lossy: RunningGateway,
    gateway: RunningGateway,
    proxy: TcpProxy,
    scheduler: ScriptedScheduler,
) -> None:
    """When the answer comes at last the request may have ended: it is replayed, not taken for a result that is gone."""
    proxy.drop_replies(script_digest("claim_key").encode(), count=10_000)
    slow = lossy.inference.Generate(keyed())
    await claimed(scheduler, lambda claim: claim is not None)
    quick = gateway.inference.Generate(keyed())
    await answer(await scheduler.next())
    await quick
    await claimed(scheduler, is_confirmed)
    proxy.pass_through()
    assert await slow == await quick
    await nothing_waits(scheduler)


async def test_who_hangs_up_amid_the_admission_cancels_nothing(
    lossy: RunningGateway,
    gateway: RunningGateway,
    proxy: TcpProxy,
    scheduler: ScriptedScheduler,
) -> None:
    """A caller whose connection broke before he had an answer comes again and finds his request."""
    proxy.drop_replies(script_digest("admit").encode(), count=10_000)
    call = lossy.inference.GenerateStream(keyed())
    led = await scheduler.next()
    call.cancel()
    await followed(led, 0)
    again = gateway.inference.Generate(keyed())
    await followed(led, 1)
    await answer(led)
    assert (await again).request_id == str(led.id)
    await nothing_waits(scheduler)


async def test_a_refusal_behind_a_lost_answer_keeps_the_claim(
    proxy: TcpProxy, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """The try before may yet be applied: the key still stands for its id, which a retry of the same body gets."""
    url = f"redis://127.0.0.1:{proxy.port}/0"
    async with running_gateway(url, tmp_path, queue_max_requests=(1,)) as narrow:
        waiting = narrow.inference.GenerateStream(keyed(idempotency_key="waits"))
        await anext(aiter(waiting))
        proxy.drop_replies(script_digest("admit").encode(), count=1)
        error = await refused(narrow.inference.Generate(keyed()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        claim = await idempotency.look(scheduler.node, NAME, bound_s=10)
        assert claim is not None
        await answer(await scheduler.next())
        call = narrow.inference.Generate(keyed())
        led = await scheduler.next()
        await answer(led)
        assert (await call).request_id == str(claim.request_id)


async def test_many_keys_many_losses(
    lossy: RunningGateway,
    gateway: RunningGateway,
    proxy: TcpProxy,
    scheduler: ScriptedScheduler,
) -> None:
    """Whatever answers get lost, callers who try again until they have one get one result for each key."""
    dice = random.Random(5)
    scripts = [script_digest(name) for name in ("claim_key", "admit", "confirm_key", "follow")]

    async def one(key: str) -> tuple[str, bytes]:
        message = keyed(idempotency_key=key, stop=max_tokens(1 + len(key)))
        while True:
            place = (lossy, gateway)[dice.randint(0, 1)]
            call = place.inference.Generate(message)
            if await call.code() is grpc.StatusCode.OK:
                return key, (await call).SerializeToString()
            assert await call.code() is grpc.StatusCode.UNAVAILABLE, await call.details()

    async def lose() -> None:
        while True:
            proxy.drop_replies(dice.choice(scripts).encode(), count=dice.choice([1, 2, 200]))
            await asyncio.sleep(dice.choice([0.02, 0.02, 0.02, 2.5]))

    async with asyncio.TaskGroup() as tasks:
        helping = [tasks.create_task(scheduler.serve()), tasks.create_task(lose())]
        results: set[tuple[str, bytes]] = set()
        num_keys = 0
        while proxy.num_dropped < NUM_LOSSES:
            names = [f"key {num_keys + number % 6}" for number in range(36)]
            results |= set(await asyncio.gather(*map(one, names)))
            num_keys += 6
        await nothing_waits(scheduler)
        for task in helping:
            task.cancel()
    assert len(results) == num_keys
    ids = {pb.GenerateResponse.FromString(data).request_id for _, data in results}
    assert sorted(str(led.id) for led in scheduler.served) == sorted(ids)


@pytest.fixture
async def node(proxy: TcpProxy) -> AsyncIterator[Node]:
    """A connection through the proxy."""
    node = Node(f"redis://127.0.0.1:{proxy.port}/0")
    yield node
    await node.close()


async def test_a_claim_knows_its_own(node: Node) -> None:
    """The first claim stands, for who repeats it and for who comes later; a later body changes nothing."""
    expected = Claim(IDS[0], "d", is_admitted=False)
    for request_id, digest in ((IDS[0], "d"), (IDS[0], "d"), (IDS[1], "d"), (IDS[2], "e")):
        assert await idempotency.claim(node, NAME, request_id, digest, bound_s=10) == expected
    assert await idempotency.look(node, NAME, bound_s=10) == expected


async def test_a_claim_is_free_when_all_were_refused(node: Node) -> None:
    """Each claimant keeps it, also when one is refused twice; one who came with another body does not count."""
    for request_id, digest in ((IDS[0], "d"), (IDS[1], "d"), (IDS[2], "e")):
        await idempotency.claim(node, NAME, request_id, digest, bound_s=10)
    for claimant in (IDS[2], IDS[0], IDS[0]):
        await idempotency.release(node, NAME, claimant, bound_s=10)
        assert await idempotency.look(node, NAME, bound_s=10) is not None
    await idempotency.release(node, NAME, IDS[1], bound_s=10)
    assert await idempotency.look(node, NAME, bound_s=10) is None


async def test_what_was_admitted_is_not_released(node: Node) -> None:
    """By nobody who was refused; it takes a successor that names it, who then has the key."""
    await idempotency.claim(node, NAME, IDS[0], "d", bound_s=10)
    await idempotency.claim(node, NAME, IDS[1], "d", bound_s=10)
    for _ in range(2):
        await idempotency.confirm(node, NAME, IDS[0], "d", bound_s=10)
    for claimant in IDS:
        await idempotency.release(node, NAME, claimant, bound_s=10)
    kept = await idempotency.claim(node, NAME, IDS[1], "d", replaces=IDS[2], bound_s=10)
    assert kept == Claim(IDS[0], "d", is_admitted=True)
    new = Claim(IDS[1], "e", is_admitted=False)
    for _ in range(2):
        assert new == await idempotency.claim(node, NAME, IDS[1], "e", replaces=IDS[0], bound_s=10)
    await idempotency.confirm(node, NAME, IDS[0], "d", bound_s=10)
    assert await idempotency.look(node, NAME, bound_s=10) == new


async def test_a_claim_outlives_what_it_stands_for(node: Node) -> None:
    """Its time starts anew with each claim that may lead to an admission, and with the admission."""

    async def life_ms() -> int:
        left: int = await node.call(lambda client: client.pttl(NAME.place))
        return left

    async def age() -> None:
        await node.call(lambda client: client.pexpire(NAME.place, 10_000))

    await idempotency.claim(node, NAME, IDS[0], "d", bound_s=10)
    assert keys.IDEMPOTENCY_TTL_MS - 60_000 < await life_ms() <= keys.IDEMPOTENCY_TTL_MS
    await age()
    await idempotency.claim(node, NAME, IDS[1], "d", bound_s=10)
    assert await life_ms() > 10_000
    await age()
    await idempotency.claim(node, NAME, IDS[2], "another body", bound_s=10)
    assert await life_ms() <= 10_000
    await idempotency.confirm(node, NAME, IDS[0], "d", bound_s=10)
    assert await life_ms() > 10_000
