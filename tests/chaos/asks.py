"""The distinct requests of a run, and what each answers when nothing is disturbed.

Stop strings and stop ids are taken from the middle of what another request answers, so that they are met.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client import AsyncClient
from tests.chaos.features import random_features
from tests.chaos.settings import ChaosSettings
from tests.support.outcomes import Outcome, collect

_WORDS = (
    "mill",
    "wheel",
    "water",
    "race",
    "stone",
    "grain",
    "sluice",
    "weir",
    "Mühle",
    "水車",
    "🌾",
)
_CLASSES = ("batch", "normal", "high", "critical")
_NUM_AT_ONCE = 8


@dataclass(frozen=True)
class Ask:
    """One request as a client would make it, without what differs from call to call."""

    number: int
    prompt: str | tuple[int, ...] | tuple[tuple[str, str], ...]
    options: dict[str, Any]

    @property
    def model(self) -> str:
        """Whom it asks."""
        return self.options["model"]

    @property
    def body(self) -> Any:
        """The prompt as the client library takes it."""
        if isinstance(self.prompt, str):
            return self.prompt
        if self.prompt and isinstance(self.prompt[0], tuple):
            return [{"role": role, "content": text} for role, text in self.prompt]
        return list(self.prompt)


@dataclass(frozen=True)
class Known:
    """An ask with its undisturbed answer."""

    ask: Ask
    answer: Outcome


async def prepare(settings: ChaosSettings, client: AsyncClient) -> list[Known]:
    """Draw the asks and let a quiet stack answer them, the second half after the first has shown where to stop."""
    rng = random.Random(f"asks {settings.seed}")
    first = [_draw(settings, rng, number) for number in range(settings.num_asks // 2)]
    known = await _answer(client, first)
    stopped = [
        _with_stop(rng, rng.choice(known), number)
        for number in range(len(first), settings.num_asks)
    ]
    return known + await _answer(client, stopped)


async def _answer(client: AsyncClient, asks: Sequence[Ask]) -> list[Known]:
    slots = asyncio.Semaphore(_NUM_AT_ONCE)

    async def one(ask: Ask) -> Known:
        async with slots:
            outcome = await collect(client, ask.body, timeout_s=240, **ask.options)
        if outcome.error is not None:
            raise outcome.error
        return Known(ask, outcome)

    return await asyncio.gather(*map(one, asks))


def _draw(settings: ChaosSettings, rng: random.Random, number: int) -> Ask:
    options: dict[str, Any] = {"model": rng.choice([*settings.workers])}
    options["max_tokens"] = _length(settings, rng)
    if rng.random() < 0.5:
        options |= {"temperature": 0.0}
    else:
        options |= {"temperature": rng.choice([0.4, 1.0, 1.5]), "seed": rng.getrandbits(63)}
        options |= {"top_p": rng.choice([0.8, 0.95, 1.0]), "top_k": rng.choice([-1, 20, 200])}
    if rng.random() < 0.5:
        options["ignore_eos"] = True
    if rng.random() < 0.2:
        options["bypass_prefix_cache"] = True
    return Ask(number, _prompt(settings, rng, number), options | random_features(rng))


def _length(settings: ChaosSettings, rng: random.Random) -> int:
    """Mostly answers of a second or two, now and then one that lives through several faults."""
    if settings.is_real:
        return rng.choice([1, 8, 24, 48, 96])
    length = rng.choice([1, 5, 20, 60, 100, 150, 200, 300, 1500])
    return min(length, settings.longest_answer_tokens)


def _prompt(settings: ChaosSettings, rng: random.Random, number: int) -> Any:
    words = f"{number} " + " ".join(rng.choices(_WORDS, k=rng.choice([1, 5, 20, 60])))
    form = rng.random()
    if form < 0.2:
        # Below every special token's id, in both models.
        return tuple(rng.choices(range(97, 122), k=rng.choice([1, 16, 17, 100])))
    if form < 0.4:
        return (("system", "You mill."), ("user", words))
    # Half of them begin alike, for prefixes that are shared.
    return f"Tell of the mill and its race. {words}" if form < 0.7 else words


def _with_stop(rng: random.Random, base: Known, number: int) -> Ask:
    """`base` again, stopped by a piece of its own answer: a string across tokens, or a token id."""
    ask, answer = base.ask, rng.choice([*base.answer.choices.values()])
    options = {**ask.options}
    middle = len(answer.text) // 2
    piece = answer.text[middle : middle + rng.randint(2, 6)]
    if rng.random() < 0.7 and piece.strip() and "\ufffd" not in piece:
        options["stop"] = [piece, "never to be met"]
        options["include_stop_in_output"] = rng.random() < 0.3
    elif answer.token_ids:
        options["stop_token_ids"] = [answer.token_ids[len(answer.token_ids) // 2]]
    return replace(ask, number=number, options=options)


def random_call_options(rng: random.Random) -> dict[str, Any]:
    """What may differ from call to call without any effect on the answer."""
    return {"priority": rng.choice(_CLASSES), "resumable": rng.random() < 0.5}
