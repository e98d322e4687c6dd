"""The prefix cache from outside: what is reused is told to the client, measured, and never another tenant's."""

import asyncio

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BAD = "~"
FLAGS = [
    *(*SIMULATED, "--kv-blocks", "64", "--block-size", "16"),
    *("--allow-faults", "--fault", f"token={ord(BAD)}:nan"),
]
PROMPT = "You are a miller. Answer briefly, and never of anything but grain. " * 2


async def ask(client: AsyncClient, prompt: str = PROMPT, **options) -> Outcome:
    outcome = await collect(
        client, prompt, model="sim", max_tokens=8, temperature=0.0, ignore_eos=True, **options
    )
    assert outcome.usage.prompt_tokens in (0, len(prompt))
    return outcome


def metric(stack: Stack, name: str) -> float:
    return sum(stack.metric(worker, name) for worker in stack.workers)


async def test_reuse_is_told_measured_and_kept_apart():
    """The same tokens; cached tokens in usage, record and metrics; other salts and tenants compute for themselves.

    Of two idle workers the one that holds less comes first: only by its prompt's beginning a request finds the other.
    """
    with running_stack(workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            first = await ask(client)
            again = await ask(client)
            assert again.answer == first.answer
            assert first.usage.cached_prompt_tokens == 0
            cached = again.usage.cached_prompt_tokens
            assert cached == (len(PROMPT) - 1) // 16 * 16
            record = await client.get_request(again.request_id)
            assert record.usage.cached_prompt_tokens == cached
            assert metric(stack, "headrace_prefix_cache_hits_total") == cached
            assert metric(stack, "headrace_prefix_cache_queries_total") == 2 * len(PROMPT)
            bypass = await ask(client, bypass_prefix_cache=True)
            salted = await ask(client, cache_salt="apart")
            for outcome in (bypass, salted):
                assert outcome.answer == first.answer
                assert outcome.usage.cached_prompt_tokens == 0
            same_salt = await ask(client, cache_salt="apart")
            assert same_salt.usage.cached_prompt_tokens == cached
        async with AsyncClient(stack.targets, metadata=[("x-tenant-id", "other")]) as stranger:
            for salt in ("", "apart"):
                outcome = await ask(stranger, cache_salt=salt)
                assert outcome.usage.cached_prompt_tokens == 0
        eventually(lambda: metric(stack, "headrace_kv_cache_usage_ratio") == 0)


async def test_numbers_that_are_none_end_one_request_and_stay_out_of_the_cache():
    """NaN in one row (B43): INTERNAL and NUMERIC for it, its neighbours undisturbed, nothing of it found again."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            witness = await ask(client, "A healthy prompt of some length, for comparison.")
            bad = await ask(client, PROMPT + BAD)
            assert bad.error is not None
            assert (bad.error.code, bad.error.reason) == ("INTERNAL", "NUMERIC")
            assert bad.token_ids == []
            assert metric(stack, "headrace_row_failures_total") == 1
            after = await ask(client, PROMPT)
            assert after.usage.cached_prompt_tokens == 0
            again = await ask(client, "A healthy prompt of some length, for comparison.")
            assert again.answer == witness.answer
        eventually(lambda: metric(stack, "headrace_kv_cache_usage_ratio") == 0)
        eventually(lambda: stack.pending_entries() == 0)


async def test_a_full_cache_evicts_and_goes_on():
    """Prompts of more blocks than the pool has: evictions are counted, and every answer stays what it was."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            answers = [await ask(client, f"{number:03} " + PROMPT) for number in range(12)]
            for number, answer in enumerate(answers):
                assert (await ask(client, f"{number:03} " + PROMPT)).answer == answer.answer
        assert metric(stack, "headrace_prefix_cache_evictions_total") > 0
        assert metric(stack, "headrace_kv_block_lifetime_seconds_count") > 0


async def test_blocks_come_back_from_disk_after_a_restart(tmp_path):
    """What the pool had no room for is in files, which the next process of the worker finds."""
    flags = [*FLAGS, "--disk-cache-dir", str(tmp_path)]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            answers = [await ask(client, f"{number:03} " + PROMPT) for number in range(12)]
            worker = stack.workers[0]
            await asyncio.to_thread(worker.stop)
            worker.start()
            await asyncio.to_thread(worker.wait_until_ready)
            again = await ask(client, "000 " + PROMPT)
            assert again.answer == answers[0].answer
            assert again.usage.cached_prompt_tokens == (len(PROMPT) + 3) // 16 * 16
            assert metric(stack, "headrace_disk_cache_hits_total") > 0
