"""Real arithmetic over the wire: the same bits whatever happens to a request (B41), what overflows fails alone (B43).

Values at the edge of what is allowed draw what they leave (B12).
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
import transformers

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import running_stack
from tests.support.time_scale import scaled
from tests.support.tiny_models import make_tiny_model, tiny_config, tiny_tokenizer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FLAGS = [
    *("--quantization", "none", "--runner", "generic", "--threads", "1", "--kv-blocks", "60"),
    *("--block-size", "8", "--max-seqs", "32", "--max-batch-tokens", "64"),
    *("--context-tokens", "400"),
]
NUM_TOKENS = 70
OVERFLOWING = 300
"""A token whose embedding is near the largest number of 16 bits."""


async def ask(client: AsyncClient, number: int, count: TokenCount | None = None) -> Outcome:
    """A long prompt, whose beginning others share, or a short one; sampled, with log probabilities."""
    rng = random.Random(number % 2)
    prompt = [rng.randrange(3, 250) for _ in range(150 if number % 4 == 0 else 20)]
    return await collect(
        client,
        [*prompt, 10 + number],
        model="exact",
        count=count,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        temperature=1.0,
        seed=number,
        output=gen.OutputOptions(logprobs=True, top_logprobs=3),
    )


async def test_a_request_has_the_same_bits_whatever_happens_to_it(tmp_path: Path):
    """Alone, in batches of 2, 8 and 32, in chunks, with cached beginnings, pre-empted, taken over: tokens and logprobs."""
    folder = make_tiny_model("llama", tmp_path / "exact")
    flags = [*FLAGS, "--model", str(folder), "--dtype", "float32"]
    with running_stack(workers=2, worker_flags=[*flags, "--served-model-name", "exact"]) as stack:
        async with AsyncClient(stack.targets) as client:
            alone = [await ask(client, number) for number in range(8)]
            assert any(outcome.usage.cached_prompt_tokens for outcome in alone)

            async def side_by_side(size: int, count: TokenCount | None = None) -> None:
                numbers = [number % len(alone) for number in range(size)]
                found = await asyncio.gather(*(ask(client, one, count) for one in numbers))
                for number, outcome in zip(numbers, found, strict=True):
                    assert outcome.error is None, outcome.error
                    assert outcome.answer == alone[number].answer
                    assert outcome.logprobs == alone[number].logprobs

            for size in (2, 8):
                await side_by_side(size)
            # Answers of one token teach the scheduler to expect short ones, so that it sends more than will fit.
            short = {"model": "exact", "max_tokens": 1}
            await asyncio.gather(*(client.generate([n], **short) for n in range(3, 80)))
            await side_by_side(32)
            preempted = [
                stack.metric(worker, "headrace_num_preemptions_total") for worker in stack.workers
            ]
            assert sum(preempted) > 0
            count = TokenCount()
            load = asyncio.create_task(side_by_side(8, count))
            await count.more(2 * NUM_TOKENS)
            stack.workers[0].kill()
            await load
        eventually(lambda: stack.pending_entries() == 0)


def make_overflowing_model(folder: Path) -> Path:
    """Sound in 16 bits but for one token: what attention adds to its embedding is more than they can hold."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(tiny_config("qwen2"))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(3e5)
        model.model.embed_tokens.weight[OVERFLOWING] = 6.5e4
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


async def test_an_overflow_of_16_bits_ends_its_request_alone(tmp_path: Path):
    """Arithmetic of its own makes a row no numbers: INTERNAL and NUMERIC, its batch mates undisturbed, nothing cached."""
    folder = make_overflowing_model(tmp_path / "half")
    flags = [*FLAGS, "--model", str(folder), "--dtype", "float16", "--served-model-name", "half"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:

            async def answer(prompt: list[int], tokens: int) -> Outcome:
                bias = {OVERFLOWING: -100.0}
                options = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0.0}
                return await collect(client, prompt, model="half", logit_bias=bias, **options)

            healthy = [[number, *range(20, 60)] for number in range(4, 9)]
            before = [await answer(prompt, 40) for prompt in healthy]
            bad_prompt = [*range(100, 140), OVERFLOWING, 7]
            bad, *beside = await asyncio.gather(
                answer(bad_prompt, 40), *(answer(prompt, 40) for prompt in healthy)
            )
            assert bad.error is not None
            assert (bad.error.code, bad.error.reason) == ("INTERNAL", "NUMERIC")
            assert bad.token_ids == []
            for got, wanted in zip(beside, before, strict=True):
                assert got.error is None
                assert got.answer == wanted.answer
            worker = stack.workers[0]
            assert stack.metric(worker, "headrace_row_failures_total") == 1
            again = await answer(bad_prompt[:40], 4)
            assert (again.error, again.usage.cached_prompt_tokens) == (None, 0)
        eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
        eventually(lambda: stack.pending_entries() == 0)


EXTREMES = [
    {"temperature": 1e-9, "seed": 3},
    {"temperature": 1e-300, "seed": 3},
    {"temperature": 1.0, "top_k": 1, "seed": 2**64 - 1},
    {"temperature": 1.0, "top_p": 1e-12, "seed": 0},
    {"temperature": 1.0, "min_p": 1.0, "seed": 3},
]


async def test_values_at_the_edge_of_what_is_allowed_are_greedy(tmp_path: Path):
    """What leaves one token to draw draws it, over gRPC and HTTP: no number overflows on the way there (B12)."""
    folder = make_tiny_model("llama", tmp_path / "edge")
    flags = [*FLAGS, "--model", str(folder), "--dtype", "float32", "--served-model-name", "edge"]
    asked: dict[str, Any] = {"model": "edge", "max_tokens": 40, "ignore_eos": True}
    prompt = [*range(20, 60)]
    with running_stack(worker_flags=flags) as stack:
        url = f"{stack.gateways[0].endpoints['http']}/api/generate"
        async with (
            AsyncClient(stack.targets) as client,
            httpx2.AsyncClient(timeout=scaled(60)) as http,
        ):
            greedy = await collect(client, prompt, temperature=0.0, **asked)
            for extreme in EXTREMES:
                got = await collect(client, prompt, **asked, **extreme)
                assert (got.error, got.answer) == (None, greedy.answer), extreme
                told = await http.post(url, json={"prompt": prompt, **asked, **extreme})
                assert told.json()["choices"][0]["token_ids"] == greedy.token_ids, extreme
