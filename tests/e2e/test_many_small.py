"""Many tiny requests leave nothing behind but their results, which have a lifetime (B34); 100,000 of them at full size."""

import asyncio

import pytest

from headrace.client import AsyncClient, build_request
from tests.support.sizes import sized
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(sized(600, 7200))]

NUM_ROUNDS, NUM_BATCHES, NUM_REQUESTS = sized(5, 20), sized(3, 50), 100
# Of a queue of a thousand.
NUM_AT_ONCE = 3
# What Redis' own bookkeeping differs by is half of this; two bounded rounds of records that stay would be 600 KB.
MOST_MORE_BYTES = 300_000
ASKED = {"model": "sim", "max_tokens": 1, "temperature": 0.0}


async def test_memory_is_flat_under_tiny_requests():
    """PELZERO after each round, and without the results Redis holds as much behind the last round as behind the third."""
    with running_stack(worker_flags=[*SIMULATED, "--max-seqs", "256"]) as stack:
        async with AsyncClient(stack.targets) as client:
            sizes, answered = [], 0
            for _ in range(NUM_ROUNDS):
                slots = asyncio.Semaphore(NUM_AT_ONCE)
                async with witnessed(stack, client, count=2, tokens=20):
                    done = [one_batch(client, slots) for _ in range(NUM_BATCHES)]
                    answered += sum(await asyncio.gather(*done))
                sizes.append(await asyncio.to_thread(size_without_results, stack))
                print(f"{answered} answered, {sizes[-1]} bytes")
            # The first two still hold what Redis gives back late.
            assert sizes[-1] - sizes[2] < MOST_MORE_BYTES, sizes


async def one_batch(client: AsyncClient, slots: asyncio.Semaphore) -> int:
    """Whose outcomes are all as they should be; their number. What is refused with advice is asked again."""
    left = [build_request(f"tiny {number}", **ASKED) for number in range(NUM_REQUESTS)]
    answered = 0
    async with slots:
        while left:
            refused = []
            async for outcome in client.batch(left):
                if outcome.error.HasField("retry_after"):
                    refused.append(left[outcome.index])
                    continue
                assert outcome.response.usage.completion_tokens == 1, outcome
                answered += 1
            left = refused
    assert answered == NUM_REQUESTS
    return answered


def size_without_results(stack: Stack) -> int:
    """Bytes that Redis uses once the results are gone, each of which has a lifetime."""
    redis = stack.redis_client()
    results = list(redis.scan_iter("hr:*:req:*", count=1000))
    assert len(results) >= NUM_BATCHES * NUM_REQUESTS
    assert all(0 < redis.pttl(key) <= 600_000 for key in results[:50])
    redis.delete(*results)
    # Of the data alone: buffers of connections come and go by half a megabyte.
    return redis.info("memory")["used_memory_dataset"]
