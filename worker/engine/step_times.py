"""How long steps of decodes take on this machine, with and without guesses: measured before anybody is served.

    decodes   guesses behind each      measured where it fits, and between those it is interpolated
       1      0   1   3   7
       4      0   1   3   7
      16      0   1   3

A row with guesses computes several tokens of one text, which costs otherwise than as many texts with one token each.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from common.domain import Clock, SamplingParams
from worker.engine.block_store import PagedRunner
from worker.engine.runner import Draw, Row

NUM_DECODES = (1, 2, 4, 8, 16)
NUM_GUESSES = (0, 1, 3, 7)
_CONTEXT_TOKENS = 256
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 7
_ENOUGH_S = 0.5
"""Whatever disturbs a run makes it longer: the shortest of several rounds counts, more where they take little time."""

Line = tuple[tuple[float, float], ...]
"""(guesses behind each decode, seconds), fewest guesses first."""


def do_nothing() -> None:
    """What is done before a step that nothing precedes."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Of one runner: for each number of decodes that was measured, the seconds by guesses behind each."""

    lines: tuple[tuple[int, Line], ...]
    _known: dict[tuple[int, int], float] = field(default_factory=dict, compare=False)

    @classmethod
    def flat(cls, step_s: float = 1.0) -> "StepTimes":
        """Where a step takes the same time whatever is in it."""
        return cls(((1, ((0.0, step_s),)),))

    def of(self, num_decodes: int, num_guesses: int = 0) -> float:
        """Seconds of a step of so many decodes with so many guesses in all."""
        key = num_decodes, num_guesses
        if key not in self._known:
            each = num_guesses / num_decodes
            points = [(count, _on_line(line, each)) for count, line in self.lines]
            self._known[key] = _on_line(points, num_decodes)
        return self._known[key]


def measure_step_times(
    runner: PagedRunner,
    *,
    max_decodes: int,
    max_tokens: int,
    context_tokens: int,
    clock: Clock,
    guesses: Sequence[int] = NUM_GUESSES,
    before: Callable[[], object] = do_nothing,
) -> StepTimes:
    """Time steps behind a text of some length; nobody holds a block yet. ``before`` is done before each of them.

    Steps have at most ``max_decodes`` rows and ``max_tokens`` tokens, and end before ``context_tokens``.
    """
    steps = {
        (num_decodes, count): _rows(runner, num_decodes, count, context_tokens)
        for num_decodes in NUM_DECODES
        for count in guesses
        if num_decodes <= max_decodes and num_decodes * (1 + count) <= max_tokens
    }
    shortest = dict.fromkeys(steps, float("inf"))
    began_s = clock()
    for number in range(_MOST_ROUNDS):
        if number >= _LEAST_ROUNDS and clock() - began_s > _ENOUGH_S:
            break
        for key, rows in steps.items():
            before()
            step_began_s = clock()
            runner.run(rows)
            shortest[key] = min(shortest[key], clock() - step_began_s)
    lines: dict[int, list[tuple[float, float]]] = {}
    for (num_decodes, count), step_s in shortest.items():
        line = lines.setdefault(num_decodes, [])
        # More guesses never take less time: what looks like it is a disturbance.
        line.append((float(count), max(step_s, line[-1][1] if line else 0.0)))
    return StepTimes(tuple((num_decodes, tuple(line)) for num_decodes, line in lines.items()))


def _rows(
    runner: PagedRunner, num_decodes: int, num_guesses: int, context_tokens: int
) -> list[Row]:
    """Decodes behind texts of their own, as far as there are blocks for that."""
    size = runner.block_size
    room = min(runner.num_blocks * size, context_tokens)
    start = max(0, min(_CONTEXT_TOKENS, room - 1 - num_guesses))
    each = -(-(start + 1 + num_guesses) // size)
    draw = Draw(SamplingParams(seed=0, temperature=0.0), 0, start)
    return [
        Row(
            [0],
            start,
            [(index * each + i) % runner.num_blocks for i in range(each)],
            draw,
            guesses=[0] * num_guesses,
            later_draws=[draw] * num_guesses,
        )
        for index in range(num_decodes)
    ]


def _on_line(points: Sequence[tuple[float, float]], at: float) -> float:
    """Straight between the points, and beyond the last as between the last two."""
    if len(points) == 1:
        return points[0][1]
    after = min(max(1, bisect_left(points, (at,))), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (at - left) / (right - left)
