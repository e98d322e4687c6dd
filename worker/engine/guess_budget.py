"""How many tokens to guess for each sequence of a step: as many as make the step bring more tokens a second.

The i-th guess behind a text counts where it and all before it are right: with the share of right guesses ``p`` it
brings p^i tokens on average. Guesses are taken likeliest first, and of all such steps the one with the most tokens a
second is chosen:

    tokens a second = (decodes + sum of p^i) / (time of the step with its guesses + time to make them)

Without any guess it is what the step brings anyway: there it stops where guesses do not pay.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from worker.engine.step_times import StepTimes

LEAST_GAIN = 1.03
"""Times are measured no more exactly than that."""

LEAST_VALUE = 0.05
"""A guess that counts more seldom pays nowhere, and to look at it takes time too."""

Text = TypeVar("Text", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Chance:
    """Of one sequence: the share of guesses that are right, and how many can be made at most."""

    share_right: float
    limit: int


def choose_counts(
    chances: Mapping[Text, Chance],
    num_decodes: int,
    times: StepTimes,
    guess_s: Callable[[int], float],
    max_tokens: int,
) -> dict[Text, int]:
    """How many guesses to make for which sequences, those without any left out.

    ``guess_s`` is the time in which one more token is guessed for so many sequences at once.
    """
    best_rate = LEAST_GAIN * num_decodes / max(times.of(num_decodes), 1e-9)
    taken: list[Text] = []
    best = 0
    num_tokens, making_s = float(num_decodes), 0.0
    at_depth: list[int] = []
    waiting = [
        (-chance.share_right, order, 1, text)
        for order, (text, chance) in enumerate(chances.items())
        if chance.limit > 0 and chance.share_right >= LEAST_VALUE
    ]
    heapq.heapify(waiting)
    while waiting and num_decodes + len(taken) < max_tokens:
        value, order, depth, text = heapq.heappop(waiting)
        taken.append(text)
        num_tokens -= value
        if len(at_depth) < depth:
            at_depth.append(0)
        others = at_depth[depth - 1]
        making_s += guess_s(others + 1) - (guess_s(others) if others else 0.0)
        at_depth[depth - 1] += 1
        step_s = times.of(num_decodes, len(taken)) + making_s
        if num_tokens / max(step_s, 1e-9) > best_rate:
            best_rate, best = num_tokens / max(step_s, 1e-9), len(taken)
        chance = chances[text]
        deeper = value * chance.share_right
        if depth < chance.limit and deeper <= -LEAST_VALUE:
            heapq.heappush(waiting, (deeper, order, depth + 1, text))
    counts: dict[Text, int] = {}
    for text in taken[:best]:
        counts[text] = counts.get(text, 0) + 1
    return counts
