"""Redis refuses memory, loses its connections, or loses everything: definite answers, then service by itself."""

import asyncio

import pytest

from headrace.client import AsyncClient, HeadraceError
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FLAGS = [*SIMULATED, "--step-ms", "15"]
NUM_STREAMS = 8
NUM_TOKENS = 120


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


async def test_out_of_memory_refuses_the_new_and_loses_nothing_of_the_old():
    """While Redis is full: UNAVAILABLE with advice for new requests. With memory again, every stream is exact."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await run_load(client, TokenCount())
            count = TokenCount()
            load = asyncio.create_task(run_load(client, count))
            await count.more(NUM_STREAMS * 10)
            redis = stack.redis_client()
            redis.config_set("maxmemory", "1mb")
            refused = await refusal(client)
            assert refused.code == "UNAVAILABLE"
            assert refused.retry_after_s is not None
            redis.config_set("maxmemory", 0)
            outcomes = await load
            assert [outcome.error for outcome in outcomes] == [None] * NUM_STREAMS
            assert [o.answer for o in outcomes] == [o.answer for o in undisturbed]


async def test_cut_connections_change_nothing():
    """Every connection to Redis is killed several times under load: every stream is exact."""
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
            outcomes = await load
            assert [outcome.error for outcome in outcomes] == [None] * NUM_STREAMS
            assert [o.answer for o in outcomes] == [o.answer for o in undisturbed]
            eventually(lambda: stack.pending_entries() == 0)


async def test_a_flush_ends_what_ran_and_new_requests_are_served():
    """FLUSHALL loses what Redis held: each stream ends whole or with a definite status, and service goes on."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await run_load(client, TokenCount())
            count = TokenCount()
            load = asyncio.create_task(run_load(client, count))
            await count.more(NUM_STREAMS * 10)
            stack.redis_client().flushall()
            for outcome, expected in zip(await load, undisturbed, strict=True):
                if outcome.error is None:
                    assert outcome.answer == expected.answer
                else:
                    assert outcome.error.code == "UNAVAILABLE", outcome.error
                    assert outcome.token_ids == expected.token_ids[: len(outcome.token_ids)]
            served = await served_again(client)
            assert len(served.token_ids) == NUM_TOKENS
            assert_idle(stack)


async def served_again(client: AsyncClient):
    """The first request that is taken; refusals must say that a retry helps."""
    while True:
        outcome = await collect(client, "after the flush", timeout_s=20, **request(5))
        if outcome.error is None:
            return outcome
        assert outcome.error.retry_after_s is not None or outcome.error.code == "NOT_FOUND", (
            outcome.error
        )
        await asyncio.sleep(outcome.error.retry_after_s or 0.5)


def assert_idle(stack: Stack) -> None:
    worker = stack.workers[0]
    eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
    eventually(lambda: stack.pending_entries() == 0)
