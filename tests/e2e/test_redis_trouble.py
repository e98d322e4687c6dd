"""Redis is full, hangs, or loses its connections: definite answers, no request harmed, then service by itself."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
import redis

from headrace.client import AsyncClient, HeadraceError
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FLAGS = [*SIMULATED, "--step-ms", "15"]
NUM_STREAMS = 8
NUM_TOKENS = 120
PAUSE_S = 30.0
# Longer than a leader's lease, and with the refusal in front longer than a gateway's.
HANGS_S = 4.0
FILLER_BYTES = 256 * 1024
SHORT = {"model": "sim", "max_tokens": 2, "ignore_eos": True}


def request(number: int) -> dict:
    return {
        "model": "sim",
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "temperature": float(number % 2),
        "seed": number,
    }


async def run_load(client: AsyncClient, count: TokenCount):
    return await asyncio.gather(
        *(collect(client, f"stream {n}", count=count, **request(n)) for n in range(NUM_STREAMS))
    )


async def refusal(client: AsyncClient) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        await client.generate("one more", timeout_s=20, **request(99))
    return caught.value


async def test_a_full_redis_refuses_the_new_and_lets_the_old_go_on():
    """Filled to its `maxmemory` by data under load: UNAVAILABLE with advice for new requests; every stream is exact and
    ends while Redis is full; once there is room, all are served (B30)."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await run_load(client, TokenCount())
            count = TokenCount()
            load = asyncio.create_task(run_load(client, count))
            await count.more(NUM_STREAMS * 10)
            async with filled(stack.redis_client()):
                await refused_in_the_end(client)
                assert_exact(await load, undisturbed)
                await refused_in_the_end(client)
                assert_idle(stack)
            await served_again(client)


@contextlib.asynccontextmanager
async def filled(server: redis.Redis) -> AsyncIterator[None]:
    """Data up to `maxmemory` and beyond, and more whenever something makes room; deleted again at the end."""
    server.config_set("maxmemory", server.info("memory")["used_memory"] + 8 * FILLER_BYTES)
    is_over, is_full = asyncio.Event(), asyncio.Event()

    async def fill() -> None:
        for number in itertools.count():
            while not is_over.is_set():
                try:
                    await asyncio.to_thread(server.set, f"filler:{number}", bytes(FILLER_BYTES))
                except redis.OutOfMemoryError:
                    is_full.set()
                    await asyncio.sleep(0.01)
                else:
                    break
            if is_over.is_set():
                return

    filling = asyncio.create_task(fill())
    try:
        async with asyncio.timeout(scaled(60)):
            await is_full.wait()
        yield
    finally:
        is_over.set()
        await filling
        server.delete(*server.keys("filler:*"))
    served = server.config_get("maxmemory")["maxmemory"]
    assert int(served) > server.info("memory")["used_memory"]


async def refused_in_the_end(client: AsyncClient) -> None:
    """Requests are refused in the documented way, or served where something that ended made room for a moment."""
    async with asyncio.timeout(scaled(80)):
        while True:
            outcome = await collect(client, "one more", timeout_s=20, **SHORT)
            if outcome.error is not None:
                break
            assert len(outcome.token_ids) == SHORT["max_tokens"]
    assert outcome.error.code == "UNAVAILABLE"
    assert outcome.error.retry_after_s is not None
    assert outcome.request_id == ""


async def test_cut_connections_change_nothing():
    """Every connection to Redis is killed several times under load: every stream is exact (B30)."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await run_load(client, TokenCount())
            count = TokenCount()
            load = asyncio.create_task(run_load(client, count))
            for _ in range(4):
                await count.more(NUM_STREAMS * 15)
                stack.redis_client().execute_command(
                    "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"
                )
            assert_exact(await load, undisturbed)
            assert_idle(stack)


async def test_a_redis_that_hangs():
    """Paused, asleep, or behind a black hole, for longer than every lease: refusals with advice, then service (B30).

    Nothing hangs longer than Redis does: a request is served soon after its return.
    """
    with running_stack(worker_flags=FLAGS, with_link=True) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await run_load(client, TokenCount())
            for hang in (paused, asleep, blackholed):
                count = TokenCount()
                load = asyncio.create_task(run_load(client, count))
                await count.more(NUM_STREAMS * 10)
                async with hang(stack):
                    refused = await refusal(client)
                    assert refused.code == "UNAVAILABLE", hang
                    assert refused.retry_after_s is not None
                async with asyncio.timeout(scaled(60)):
                    await served_again(client, max_tokens=1)
                assert_exact(await load, undisturbed)
            assert_idle(stack)
            assert stack.metric(stack.schedulers[0], "headrace_takeovers_total") == 0


@contextlib.asynccontextmanager
async def paused(stack: Stack) -> AsyncIterator[None]:
    stack.redis.pause()
    try:
        yield
        await asyncio.sleep(PAUSE_S)
    finally:
        stack.redis.resume()


@contextlib.asynccontextmanager
async def asleep(stack: Stack) -> AsyncIterator[None]:
    sleep = ("DEBUG", "SLEEP", str(HANGS_S + 2))
    asleep = asyncio.create_task(asyncio.to_thread(stack.redis_client().execute_command, *sleep))
    await asyncio.to_thread(eventually, lambda: not answers(stack))
    yield
    await asleep


def answers(stack: Stack) -> bool:
    """Whether Redis does, within less than it sleeps."""
    try:
        return bool(redis.Redis.from_url(stack.redis.url, socket_timeout=0.3).ping())
    except redis.TimeoutError:
        return False


@contextlib.asynccontextmanager
async def blackholed(stack: Stack) -> AsyncIterator[None]:
    assert stack.link is not None
    stack.link.blackhole()
    try:
        yield
        await asyncio.sleep(HANGS_S)
    finally:
        stack.link.pass_through()


async def served_again(client: AsyncClient, **options: object) -> Outcome:
    """The first request that is taken; refusals must say that a retry helps."""
    while True:
        outcome = await collect(client, "after it", timeout_s=20, **request(5) | options)
        if outcome.error is None:
            return outcome
        assert outcome.error.retry_after_s is not None, outcome.error
        await asyncio.sleep(outcome.error.retry_after_s)


def assert_exact(outcomes: list[Outcome], undisturbed: list[Outcome]) -> None:
    assert [outcome.error for outcome in outcomes] == [None] * NUM_STREAMS
    assert [o.answer for o in outcomes] == [o.answer for o in undisturbed]
    assert [o.usage for o in outcomes] == [o.usage for o in undisturbed]


def assert_idle(stack: Stack) -> None:
    worker = stack.workers[0]
    eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
    eventually(lambda: stack.pending_entries() == 0)
