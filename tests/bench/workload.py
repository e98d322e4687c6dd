"""The workload that peers are measured with: English prompts of 50 to 500 tokens, 64 greedy tokens each.

Prompts share no prefix: each starts with its own number and goes on with sentences drawn for it alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client import AsyncClient

NUM_REQUESTS = 64
OUTPUT_TOKENS = 64
SUBJECTS = [
    "the miller",
    "an old engineer",
    "every visitor",
    "the river",
    "a young farmer",
    "the town council",
    "her brother",
]
VERBS = [
    "repaired",
    "watched",
    "described",
    "measured",
    "painted",
    "forgot",
    "rebuilt",
    "admired",
    "closed",
    "inspected",
]
OBJECTS = [
    "the wooden wheel",
    "a stone bridge",
    "the long channel",
    "two heavy sluices",
    "the spring flood",
    "an iron gate",
]
ENDINGS = [
    "before the rain came",
    "in the summer of that year",
    "without saying a word",
    "as the evening fell",
    "for the last time",
]


@dataclass(frozen=True)
class Workload:
    """Prompts as token ids; all requests ask for the same number of output tokens."""

    prompts: Sequence[Sequence[int]]
    output_tokens: int = OUTPUT_TOKENS


def english(rng: random.Random, num_sentences: int) -> str:
    """Sentences that read like English and repeat little."""
    parts = [
        f"{rng.choice(SUBJECTS).capitalize()} {rng.choice(VERBS)} {rng.choice(OBJECTS)} {rng.choice(ENDINGS)}."
        for _ in range(num_sentences)
    ]
    return " ".join(parts)


def texts(seed: int) -> list[tuple[str, int]]:
    """What prompts are cut from, and how many tokens of it: ``random.Random(seed).randint(50, 500)``."""
    rng = random.Random(seed)
    lengths = [rng.randint(50, 500) for _ in range(NUM_REQUESTS)]
    return [
        (f"{number * 37 + seed} notes. " + english(rng, length // 8 + 8), length)
        for number, length in enumerate(lengths)
    ]


async def make_workload(client: AsyncClient, model: str, *, seed: int = 7) -> Workload:
    """The workload for a served model's own tokenizer."""
    prompts = []
    for text, length in texts(seed):
        counted = await client.count_tokens(text, model=model, return_token_ids=True)
        assert len(counted.token_ids) >= length
        prompts.append(list(counted.token_ids)[:length])
    return Workload(prompts)
