"""A worker with little KV memory: what can never fit is refused, what fits in turn is served, cancels hurt nobody (B02, B20)."""

import asyncio
import random

import pytest

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BLOCKS, BLOCK_TOKENS, CONTEXT = 40, 8, 1024
CAPACITY = BLOCKS * BLOCK_TOKENS
FLAGS = [
    *(*SIMULATED, "--kv-blocks", str(BLOCKS), "--block-size", str(BLOCK_TOKENS)),
    *("--context-tokens", str(CONTEXT), "--max-seqs", "12", "--step-ms", "2"),
]


async def ask(client: AsyncClient, prompt, max_tokens: int, **options) -> Outcome:
    return await collect(
        client, prompt, model="sim", max_tokens=max_tokens, ignore_eos=True, **options
    )


def assert_nothing_left(stack: Stack) -> None:
    worker = stack.workers[0]
    eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
    eventually(lambda: stack.metric(worker, "headrace_num_requests_running") == 0)
    eventually(lambda: stack.metric(worker, "headrace_num_requests_waiting") == 0)
    eventually(lambda: stack.pending_entries() == 0)


async def test_what_can_never_fit_is_refused_and_blocks_nobody():
    """Too long for the context, and too long for the memory: INVALID_ARGUMENT with both limits, at once (B02)."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            control = await ask(client, "control", 8, temperature=0.0)
            for length in (CONTEXT + 1, CONTEXT, CONTEXT - 1, CAPACITY + 1, CAPACITY):
                with pytest.raises(HeadraceError) as refused:
                    await client.generate([7] * length, model="sim", max_tokens=1)
                assert refused.value.code == "INVALID_ARGUMENT"
                assert refused.value.reason == "CONTEXT_LENGTH_EXCEEDED"
                assert refused.value.metadata["context_tokens"] == str(CONTEXT)
                assert refused.value.metadata["kv_capacity_tokens"] == str(CAPACITY)
            assert stack.pending_entries() == 0
            largest = await ask(client, [7] * (CAPACITY - 1), 1)
            assert (largest.error, len(largest.token_ids)) == (None, 1)
            longest = await ask(client, [7], CAPACITY - 1)
            assert (longest.error, len(longest.token_ids)) == (None, CAPACITY - 1)
            assert (await ask(client, "control", 8, temperature=0.0)).answer == control.answer
        assert_nothing_left(stack)


async def test_requests_take_turns_on_a_pool_that_is_too_small():
    """Each may need most of the pool: pre-empted again and again, all end with the tokens they get alone."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            requests = [
                {"prompt": f"story {i} " * 3, "max_tokens": 200, "temperature": i % 2, "seed": i}
                for i in range(8)
            ]
            alone = [await ask(client, **request) for request in requests]
            together = await asyncio.gather(*(ask(client, **request) for request in requests))
            for got, expected in zip(together, alone, strict=True):
                assert got.error is None
                assert got.answer == expected.answer
                assert got.usage.completion_tokens == 200
        assert stack.metric(stack.workers[0], "headrace_num_preemptions_total") > 0
        assert_nothing_left(stack)


async def cancel_somehow(
    client: AsyncClient, number: int, rng: random.Random, codes: set[str]
) -> None:
    """One request, cancelled at a random place: before it is read, while it waits, runs or made room, or too late."""
    after = rng.randint(1, 40)
    seen = 0
    async with client.stream(
        f"doomed {number} " * rng.randint(1, 8), model="sim", max_tokens=rng.randint(1, 120)
    ) as stream:
        try:
            async for event in stream:
                seen += 1
                if seen == after or event.HasField("finish"):
                    ids = [stream.request_id or ""] * 2
                    statuses = await asyncio.gather(*map(client.cancel, ids))
                    assert all(status.status in FINAL_OR_LIVE for status in statuses)
        except HeadraceError as ended:
            codes.add(ended.code)
    status = await client.cancel(stream.request_id or "")
    # The client hears of the end before the record says it.
    assert status.status in FINAL or status.cancelling


FINAL = {gen.REQUEST_STATUS_FINISHED, gen.REQUEST_STATUS_CANCELLED}
FINAL_OR_LIVE = FINAL | {gen.REQUEST_STATUS_QUEUED, gen.REQUEST_STATUS_RUNNING}


async def test_cancels_at_any_moment_disturb_nobody():
    """At a high rate, twice, too late and for ids that nobody knows: witnesses keep their tokens, no errors are logged (B20)."""
    rng = random.Random(5)
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            witnesses = [
                {"prompt": f"witness {i} ", "max_tokens": 150, "temperature": 1.0, "seed": i}
                for i in range(5)
            ]
            expected = [await ask(client, **witness) for witness in witnesses]
            running = [asyncio.create_task(ask(client, **witness)) for witness in witnesses]
            codes: set[str] = set()
            await asyncio.gather(*(cancel_somehow(client, n, rng, codes) for n in range(60)))
            assert codes == {"CANCELLED"}
            with pytest.raises(HeadraceError) as unknown:
                await client.cancel("sim:0:" + "0" * 32)
            assert unknown.value.code == "NOT_FOUND"
            for task, alone in zip(running, expected, strict=True):
                got = await task
                assert got.error is None
                assert got.answer == alone.answer
        assert_nothing_left(stack)
        for process in (*stack.workers, *stack.schedulers, *stack.gateways):
            assert '"level": "error"' not in process.log
            assert '"level": "critical"' not in process.log
