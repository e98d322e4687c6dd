"""A worker that guesses tokens, over the wire: not one differs from those of a worker that does not."""

import asyncio
from typing import Any

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, collect
from tests.support.processes import ServiceProcess
from tests.support.stack import Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FLAGS = ["--quantization", "int8", "--threads", "1", "--max-seqs", "4", "--kv-blocks", "256"]
# What guesses cost is measured when the worker starts: where its measurements were disturbed it waits before it tries them.
MOST_ROUNDS = 10
TEXT = (
    "The old mill stood at the end of the village, where the river turned. Every morning the miller opened the sluice, "
    "and the wheel began to turn."
)
REPEATING = [{"role": "user", "content": f"Repeat the following text word for word:\n\n{TEXT}"}]
SCORES = gen.OutputOptions(logprobs=True, top_logprobs=2)
# Greedy and seeded; a stop in the midst of what is repeated; choices; a grammar, for which nothing is guessed.
ASKS: list[dict[str, Any]] = [
    {"temperature": 0.0, "output": SCORES},
    {"temperature": 0.7, "seed": 5},
    {"temperature": 0.0, "stop": "river turned"},
    {"temperature": 0.9, "seed": 6, "n": 2},
    {"temperature": 0.0, "constraint": gen.OutputConstraint(regex="(the mill ){3,9}")},
]


def guessed(stack: Stack, worker: ServiceProcess) -> tuple[float, float]:
    """Tokens that a worker has guessed, and those of them that were right."""
    names = ("headrace_guessed_tokens_total", "headrace_accepted_tokens_total")
    first, second = (stack.metric(worker, name) for name in names)
    return first, second


async def test_guesses_change_nothing():
    """Alone and side by side: ids, text, scores and ends are those of a worker without; metrics tell what came of them."""
    plain = [*FLAGS, "--served-model-name", "plain"]
    guessing = [*FLAGS, "--served-model-name", "guessing", "--speculation", "lookup"]
    with running_stack(worker_flags=plain, more_workers=[guessing]) as stack:
        async with AsyncClient(stack.targets) as client:

            async def ask(model: str, options: dict[str, Any]) -> Outcome:
                return await collect(client, REPEATING, model=model, max_tokens=60, **options)

            def check(got: Outcome, wanted: Outcome) -> None:
                assert (got.error, wanted.error) == (None, None)
                assert got.choices == wanted.choices
                assert got.counted == wanted.counted

            wanted = [await ask("plain", options) for options in ASKS]
            together = await asyncio.gather(*(ask("guessing", options) for options in ASKS))
            for one, expected in zip(together, wanted, strict=True):
                check(one, expected)
            without, with_guesses = stack.workers
            for _ in range(MOST_ROUNDS):
                for options, expected in zip(ASKS, wanted, strict=True):
                    check(await ask("guessing", options), expected)
                num_guessed, num_right = guessed(stack, with_guesses)
                if num_right:
                    break
        assert 0 < num_right <= num_guessed
        assert 0 < stack.metric(with_guesses, "headrace_guess_acceptance_ratio") <= 1
        assert guessed(stack, without) == (0, 0)
