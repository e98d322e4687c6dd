"""Texts that run past what a model looks back at, over the wire: transformers' tokens, also through kill -9 of the worker."""

import asyncio
import random
from pathlib import Path

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import running_stack
from tests.support.tiny_models import VOCAB_SIZE, greedy_answer, make_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

BLOCK, NUM_BLOCKS = 16, 14
FLAGS = [
    *("--quantization", "none", "--dtype", "float32", "--runner", "generic", "--threads", "1"),
    *("--kv-blocks", str(NUM_BLOCKS), "--block-size", str(BLOCK), "--max-seqs", "8"),
    *("--max-batch-tokens", "64", "--context-tokens", "480", "--served-model-name", "window"),
]
LENGTHS = (300, 10, 24, 45, 70)
"""Of the prompts: the first alone is more than a worker's pool holds, so that its text rolls; the window is 24 tokens."""
NUM_TOKENS, MIDST = 120, 30


async def test_texts_past_the_window(tmp_path: Path):
    """Five windows of answer, side by side on blocks for one: the worker dies in the midst of the longest, another goes on.

    Then all of it again, undisturbed.
    """
    assert LENGTHS[0] > BLOCK * NUM_BLOCKS
    folder = make_tiny_model("mistral", tmp_path / "window")
    rng = random.Random(3)
    prompts = [[rng.randrange(3, VOCAB_SIZE // 2) for _ in range(length)] for length in LENGTHS]
    expected = [greedy_answer(folder, prompt, NUM_TOKENS) for prompt in prompts]
    flags = [*FLAGS, "--model", str(folder)]
    deadly = ["--allow-faults", "--fault", f"token={_last_of_its_kind(prompts, expected)}:exit"]
    with running_stack(worker_flags=[*flags, *deadly]) as stack:
        async with AsyncClient(stack.targets) as client:

            async def ask(number: int) -> Outcome:
                outcome = await collect(
                    client,
                    prompts[number],
                    model="window",
                    max_tokens=NUM_TOKENS,
                    ignore_eos=True,
                    temperature=0.0,
                )
                assert outcome.error is None, outcome.error
                assert outcome.token_ids == expected[number], LENGTHS[number]
                return outcome

            (worker,) = stack.workers
            load = asyncio.gather(*map(ask, range(len(prompts))))
            assert await asyncio.to_thread(worker.wait) != 0
            worker.flags = [flag for flag in worker.flags if flag not in deadly]
            worker.start()
            await asyncio.to_thread(worker.wait_until_ready)
            longest, *_ = await load
            assert longest.timings.attempts > 1
            await asyncio.gather(*map(ask, range(len(prompts))))
        eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
        eventually(lambda: stack.pending_entries() == 0)


def _last_of_its_kind(prompts: list[list[int]], expected: list[list[int]]) -> int:
    """A token from the midst of the longest text that comes nowhere before, nor in any other text."""
    longest, *others = expected
    known = {*longest[:MIDST], *(token for text in (*prompts, *others) for token in text)}
    return next(token for token in longest[MIDST:-MIDST] if token not in known)
