"""Every feature of a request over real processes, and through kill -9 of the worker that runs it."""

import asyncio
import json
from typing import Any

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FLAGS = [*SIMULATED, "--step-ms", "15", "--kv-blocks", "512", "--max-seqs", "16"]
REAL_FLAGS = [
    "--quantization",
    "int8",
    "--max-seqs",
    "8",
    "--kv-blocks",
    "256",
    "--threads",
    "1",
    "--served-model-name",
    "real",
]
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "mills": {
                "type": "array",
                "minItems": 4,
                "maxItems": 4,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 8, "maxLength": 12},
                        "wheels": {"type": "integer", "minimum": 100, "maximum": 999},
                    },
                    "required": ["name", "wheels"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["mills"],
        "additionalProperties": False,
    }
)
EVERYTHING = gen.OutputOptions(logprobs=True, top_logprobs=2, prompt_logprobs=True, echo=True)
PENALTIES: dict[str, Any] = {
    "repetition_penalty": 1.2,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "min_p": 0.01,
    "typical_p": 0.95,
    "logit_bias": {120: -100.0},
}


def asks() -> list[dict[str, Any]]:
    """Requests that between them use everything; long enough to be under way when the worker dies."""
    regex = gen.OutputConstraint(regex="([a-f]{3}-){30}end")
    return [
        {"constraint": gen.OutputConstraint(json_schema=SCHEMA), "max_tokens": 400},
        {"constraint": regex, "max_tokens": 200, "output": EVERYTHING},
        {"max_tokens": 90, "ignore_eos": True, "output": EVERYTHING, **PENALTIES},
        {"max_tokens": 90, "ignore_eos": True, "min_tokens": 60, "stop_token_ids": [101, 32]},
        {"max_tokens": 90, "ignore_eos": True, "n": 1, "output": gen.OutputOptions(logprobs=True)},
    ]


async def run_all(stack: Stack, count: TokenCount) -> list[Outcome]:
    """All of them at once, each seeded and each twice."""
    async with AsyncClient(stack.targets) as client:
        model = (await client.models())[0].name
        return await asyncio.gather(
            *(
                collect(
                    client,
                    f"Tell of mill number {number}.",
                    model=model,
                    count=count,
                    seed=number,
                    temperature=0.8,
                    **options,
                )
                for number, options in enumerate(asks() * 2)
            )
        )


def assert_equal(got: Outcome, expected: Outcome) -> None:
    """Everything that a client was told of two runs of one request."""
    assert got.error is None, got.error
    assert got.answer == expected.answer
    assert got.logprobs == expected.logprobs
    assert got.prompt_logprobs == expected.prompt_logprobs
    assert got.counted == expected.counted
    assert got.matched_stop == expected.matched_stop


@pytest.mark.parametrize(
    "flags", [pytest.param(FLAGS, id="simulated"), pytest.param(REAL_FLAGS, id="real")]
)
async def test_a_killed_worker_is_noticed_by_nobody(flags: list[str]):
    """Grammar, penalties, log probabilities, echo, least lengths: an interrupted run equals an undisturbed one."""
    with running_stack(workers=2, worker_flags=flags) as stack:
        undisturbed = await run_all(stack, TokenCount())
        json.loads(undisturbed[0].text)
        assert len(undisturbed[1].logprobs) == len(undisturbed[1].token_ids)
        assert len(undisturbed[1].prompt_logprobs) == undisturbed[1].usage.prompt_tokens
        assert undisturbed[2].text.startswith("Tell of mill number 2.")
        count = TokenCount()
        load = asyncio.create_task(run_all(stack, count))
        await count.more(sum(len(one.token_ids) for one in undisturbed) // 3)
        stack.workers[0].kill()
        for got, expected in zip(await load, undisturbed, strict=True):
            assert_equal(got, expected)
        eventually(lambda: stack.pending_entries() == 0)


async def test_a_stop_string_half_sent_when_the_worker_dies():
    """What was held back for it is held back again: no part of it is ever sent (B14, B28)."""
    with running_stack(workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            options: dict[str, Any] = {"model": "sim", "temperature": 0.0, "max_tokens": 120}
            whole = await collect(client, "mill", **options)
            # Long, so that a kill falls inside it: held back from its first character to its last.
            stop = whole.text[20:80]
            seen: list[str] = []
            count = TokenCount()
            running = asyncio.create_task(
                collect(
                    client,
                    "mill",
                    stop=stop,
                    count=count,
                    on_event=lambda event: seen.append(event.delta.text),
                    **options,
                )
            )
            await count.more(50)
            stack.workers[0].kill()
            outcome = await running
        first = whole.text.index(stop)
        assert outcome.error is None
        assert outcome.text == "".join(seen) == whole.text[:first]
        assert outcome.matched_stop.stop_string == stop
        assert outcome.finish_reason == gen.FINISH_REASON_STOP
