"""The stack's fp32 greedy tokens equal transformers.generate's, for varied prompts run concurrently."""

import asyncio
import random
from pathlib import Path

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as pb
from tests.support.outcomes import Outcome, collect
from tests.support.stack import running_stack
from tests.support.tiny_models import FAMILIES, VOCAB_SIZE, make_tiny_model
from worker.engine.model_settings import ModelSettings
from worker.model.checkpoint import find_checkpoint

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NUM_TOKENS = 24
LENGTHS = (1, 2, 3, 5, 7, 11, 15, 16, 17, 25, 31, 32, 33, 40, 63, 90, 128, 150, 255, 700)
"""Of the 20 prompts of each family: around the borders of blocks and chunks too."""
FLAGS = ["--quantization", "none", "--dtype", "float32", "--max-seqs", "16"]
WORDS = [
    "the",
    "mill",
    "wheel",
    "turns",
    "while",
    "water",
    "runs",
    "down",
    "from",
    "the",
    "hill",
    "and",
    "stone",
    "grinds",
    "grain",
    "into",
    "flour",
]
TEXTS = [
    "A",
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "#include <stdio.h>\nint main(void) {",
    "Die Hauptstadt von Deutschland ist",
    "今日はとても良い天気ですね。",
    "Привет, как дела?",
    "مرحبا بالعالم",
    "😀😃😄 means",
    "12345 + 67890 =",
    "   leading and trailing spaces   ",
    "SELECT name FROM users WHERE",
]
CHATS = [
    "What is the capital of France?",
    "Write a haiku about water.",
    "¿Cómo te llamas?",
    "Add 17 and 25.",
]


def prompts():
    """20 prompts, 1 to 700 tokens: text and chat, several languages, code."""
    rng = random.Random(11)
    long = [" ".join(rng.choices(WORDS, k=k)) for k in (60, 200, 420, 680)]
    return [*TEXTS, *long], [[{"role": "user", "content": chat}] for chat in CHATS]


def expected_tokens(model_dir: str, token_ids: list[list[int]]) -> list[list[int]]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    answers = []
    for ids in token_ids:
        with torch.inference_mode():
            output = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False,
                max_new_tokens=NUM_TOKENS,
                pad_token_id=0,
            )
        answers.append(output[0, len(ids) :].tolist())
    return answers


async def run_all(
    client: AsyncClient, model: str, prompts: list
) -> list[tuple[Outcome, list[int]]]:
    """All prompts in shared steps, each started when the one three before it has its first token."""
    started = [asyncio.Event() for _ in prompts]

    async def run(number: int) -> tuple[Outcome, list[int]]:
        if number >= 3:
            await started[number - 3].wait()
        outcome = await collect(
            client,
            prompts[number],
            model=model,
            on_event=lambda event: started[number].set() if event.HasField("delta") else None,
            max_tokens=NUM_TOKENS,
            temperature=0.0,
        )
        started[number].set()
        counted = await client.count_tokens(prompts[number], model=model, return_token_ids=True)
        return outcome, list(counted.token_ids)

    return await asyncio.gather(*(run(number) for number in range(len(prompts))))


def assert_as_expected(results: list[tuple[Outcome, list[int]]], folder: Path) -> None:
    expected = expected_tokens(str(folder), [ids for _, ids in results])
    for (outcome, ids), tokens in zip(results, expected, strict=True):
        assert outcome.error is None
        assert outcome.token_ids == tokens, len(ids)
        assert outcome.usage.prompt_tokens == len(ids)
        assert outcome.finish_reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_LENGTH)


async def test_greedy_tokens_equal_transformers():
    """Batching, chunking, paging and the way through the stack change no token of the default model."""
    texts, chats = prompts()
    with running_stack(
        worker_flags=[*FLAGS, "--max-batch-tokens", "256", "--kv-blocks", "400"]
    ) as stack:
        async with AsyncClient(stack.targets) as client:
            (model,) = await client.models()
            results = await run_all(client, model.name, [*texts, *chats])
    lengths = [len(ids) for _, ids in results]
    assert min(lengths) <= 2
    assert max(lengths) >= 600
    assert_as_expected(results, find_checkpoint(ModelSettings(), progress=lambda step: None))


async def test_every_family_equals_transformers(tmp_path: Path):
    """Tiny random models of each family, all served by one stack at once, give transformers' tokens."""
    folders = {family: make_tiny_model(family, tmp_path / family) for family in FAMILIES}
    flags = [
        [*FLAGS, "--model", str(folder), "--served-model-name", family, "--kv-blocks", "200"]
        for family, folder in folders.items()
    ]
    rng = random.Random(5)
    token_prompts = [[rng.randrange(3, VOCAB_SIZE) for _ in range(n)] for n in LENGTHS]
    with running_stack(workers=0, more_workers=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            assert {model.name for model in await client.models()} == set(FAMILIES)
            runs = [run_all(client, family, token_prompts) for family in FAMILIES]
            by_family = dict(zip(FAMILIES, await asyncio.gather(*runs), strict=True))
    for family, results in by_family.items():
        assert_as_expected(results, folders[family])
