"""Kill -9 of every process under load: each stream ends with exactly the undisturbed tokens (I1-I6)."""

import asyncio
import contextlib
from typing import Any

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

NUM_STREAMS = 24
NUM_TOKENS = 96
SIMULATED_FLAGS = [*SIMULATED, "--step-ms", "15", "--kv-blocks", "512", "--max-seqs", "16"]
REAL_FLAGS = [
    "--quantization",
    "none",
    "--max-seqs",
    "8",
    "--kv-blocks",
    "256",
    "--served-model-name",
    "real",
]


# Whatever changes tokens, or comes with them, but no length.
FEATURES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.1},
    {"output": gen.OutputOptions(logprobs=True, top_logprobs=2, prompt_logprobs=True)},
    {"min_p": 0.01, "typical_p": 0.95, "logit_bias": {101: -100.0, 116: 1.5}},
    {"output": gen.OutputOptions(echo=True), "stop": "never to be met"},
]


async def run_load(stack: Stack, count: TokenCount, *, streams: int, tokens: int) -> list[Outcome]:
    """Streams over both gateways at once, greedy and seeded alternately, each to its end."""
    async with contextlib.AsyncExitStack() as exits:
        clients = []
        for shift in range(len(stack.targets)):
            order = stack.targets[shift:] + stack.targets[:shift]
            clients.append(await exits.enter_async_context(AsyncClient(order)))
        model = (await clients[0].models())[0].name
        return await asyncio.gather(
            *(
                collect(
                    clients[number % len(clients)],
                    f"Request number {number} tells of a mill. " * (1 + number % 5),
                    model=model,
                    count=count,
                    max_tokens=tokens,
                    ignore_eos=True,
                    temperature=float(number % 2),
                    seed=number,
                    resumable=True,
                    **FEATURES[number % len(FEATURES)],
                )
                for number in range(streams)
            )
        )


def assert_equal_runs(disturbed: list[Outcome], undisturbed: list[Outcome], tokens: int) -> None:
    for got, expected in zip(disturbed, undisturbed, strict=True):
        assert got.error is None, (got.request_id, got.error)
        assert got.answer == expected.answer, got.request_id
        assert got.logprobs == expected.logprobs, got.request_id
        assert got.prompt_logprobs == expected.prompt_logprobs, got.request_id
        assert got.usage.completion_tokens == tokens, got.request_id
        assert got.usage.prompt_tokens == expected.usage.prompt_tokens


def assert_nothing_left(stack: Stack) -> None:
    """KVFREE and PELZERO: no block in use, nothing running, no inbox entry."""
    workers = [worker for worker in stack.workers if worker.process.poll() is None]
    for worker in workers:
        eventually(lambda w=worker: stack.metric(w, "headrace_kv_cache_usage_ratio") == 0)
        eventually(lambda w=worker: stack.metric(w, "headrace_num_requests_running") == 0)
    eventually(lambda: stack.pending_entries() == 0)


@pytest.mark.parametrize(
    ("flags", "streams", "tokens"),
    [
        pytest.param(SIMULATED_FLAGS, NUM_STREAMS, NUM_TOKENS, id="simulated"),
        pytest.param(REAL_FLAGS, 4, 40, id="real"),
    ],
)
async def test_kill_every_process_under_load(flags: list[str], streams: int, tokens: int):
    """Worker, leading scheduler, gateway, Redis, one after the other: nothing lost, nothing twice, nothing altered (B27, B30)."""
    with running_stack(schedulers=2, gateways=2, workers=2, worker_flags=flags) as stack:
        undisturbed = await run_load(stack, TokenCount(), streams=streams, tokens=tokens)
        count = TokenCount()
        load = asyncio.create_task(run_load(stack, count, streams=streams, tokens=tokens))
        step = streams * tokens // 8
        await count.more(step)
        stack.workers[0].kill()
        await count.more(step)
        stack.leading_scheduler().kill()
        await count.more(step)
        stack.gateways[0].kill()
        await count.more(step)
        stack.redis.kill()
        await asyncio.to_thread(stack.redis.restart)
        assert_equal_runs(await load, undisturbed, tokens)
        assert_nothing_left(stack)
