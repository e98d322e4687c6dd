"""Traces made from published distributions, for those who have no trace of their own.

azure   The Azure traces of 2023, as Splitwise describes them: half the requests are conversations (median 1020 prompt
        and 129 output tokens), half are code completions (1500 and 13), arrivals are nearly Poisson.
burst   BurstGPT: gaps between arrivals follow a Gamma distribution of shape 0.5, lengths one with a heavy tail.
flood   Short requests of nine tenants, and a tenth that sends ten times as many long ones from a third of the time on.
mixed   Long NORMAL and BATCH requests that fill every worker, and a few short HIGH ones with deadlines.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from common.domain import Priority
from tests.bench.simulate.trace import Arrival

_CLASSES = (Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.BATCH)
_SHARES = (0.02, 0.18, 0.60, 0.20)
_MAX_PROMPT, _MAX_OUTPUT = 7000, 1024


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths by their median and spread."""

    median: float
    sigma: float
    most: int

    def draw(self, rng: random.Random) -> int:
        """One length."""
        return max(1, min(self.most, round(self.median * rng.lognormvariate(0.0, self.sigma))))


_CHAT = (Lengths(1020, 0.9, _MAX_PROMPT), Lengths(129, 0.8, _MAX_OUTPUT))
_CODE = (Lengths(1500, 0.9, _MAX_PROMPT), Lengths(13, 1.0, _MAX_OUTPUT))
_HEAVY = (Lengths(250, 1.2, _MAX_PROMPT), Lengths(150, 1.1, _MAX_OUTPUT))
_SHORT = (Lengths(60, 0.5, 400), Lengths(20, 0.5, 100))
_LONG = (Lengths(800, 0.5, 3000), Lengths(400, 0.5, _MAX_OUTPUT))

Draw = Callable[[random.Random, float], tuple[int, int, Priority, str, float]]
"""Lengths, class, tenant and deadline of a request that arrives at a share of the trace."""


def _mixture(*kinds: tuple[Lengths, Lengths]) -> Draw:
    def draw(rng: random.Random, _: float) -> tuple[int, int, Priority, str, float]:
        prompts, outputs = rng.choice(kinds)
        (priority,) = rng.choices(_CLASSES, _SHARES)
        # Few tenants send most of what comes.
        tenant = f"t{min(49, int(rng.paretovariate(1.0)) - 1):02}"
        deadline_s = rng.uniform(5, 60) if rng.random() < 0.3 else 0.0
        return prompts.draw(rng), outputs.draw(rng), priority, tenant, deadline_s

    return draw


def _flood(rng: random.Random, share: float) -> tuple[int, int, Priority, str, float]:
    if share > 1 / 3 and rng.random() < 10 / 11:
        return _LONG[0].draw(rng), _LONG[1].draw(rng), Priority.NORMAL, "flood", 0.0
    tenant = f"quiet{rng.randrange(9)}"
    return _SHORT[0].draw(rng), _SHORT[1].draw(rng), Priority.NORMAL, tenant, 0.0


def _mixed(rng: random.Random, _: float) -> tuple[int, int, Priority, str, float]:
    if rng.random() < 0.2:
        return _SHORT[0].draw(rng), _SHORT[1].draw(rng), Priority.HIGH, "chat", 10.0
    priority = rng.choice((Priority.NORMAL, Priority.BATCH))
    return _LONG[0].draw(rng), _LONG[1].draw(rng), priority, f"jobs{rng.randrange(4)}", 0.0


SHAPES: dict[str, tuple[Draw, float]] = {
    "azure": (_mixture(_CHAT, _CODE), 1.0),
    "burst": (_mixture(_HEAVY), 0.5),
    "flood": (_flood, 1.0),
    "mixed": (_mixed, 1.0),
}
"""What is drawn, and the Gamma shape of the gaps (1 is Poisson, less comes in bursts)."""


def make_trace(
    shape: str, count: int, rate: Callable[[Sequence[Arrival]], float], *, seed: int
) -> list[Arrival]:
    """``count`` requests of a shape; ``rate`` says from a sample of them how many come per second."""
    draw, gamma = SHAPES[shape]
    sample = list(_arrivals(draw, gamma, 2000, 1.0, random.Random(seed + 1)))
    return list(_arrivals(draw, gamma, count, rate(sample), random.Random(seed)))


def _arrivals(
    draw: Draw, gamma: float, count: int, rate_per_s: float, rng: random.Random
) -> Iterator[Arrival]:
    at_s = 0.0
    for number in range(count):
        at_s += rng.gammavariate(gamma, 1 / (gamma * rate_per_s))
        prompt, output, priority, tenant, deadline_s = draw(rng, number / count)
        max_tokens = min(_MAX_OUTPUT, max(output, 256))
        yield Arrival(at_s, prompt, output, max_tokens, priority, tenant, deadline_s)
