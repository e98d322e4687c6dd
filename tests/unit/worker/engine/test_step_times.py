"""Times of steps are read off a runner, and between them they are interpolated."""

from collections.abc import Sequence

import pytest

from tests.support.fake_clock import FakeClock
from worker.engine.runner import Row, RowResult
from worker.engine.step_times import measure_step_times
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings


class TimedRunner(SimulatedRunner):
    """Takes 10 ms for a step, 2 for a row and 1 for a guess; a first run of anything takes longer."""

    def __init__(self, clock: FakeClock, num_blocks: int) -> None:
        super().__init__(SimulatedSettings(kv_blocks=num_blocks))
        self._clock = clock
        self._met: set[tuple[int, int]] = set()
        self.last_position = 0

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        guesses = sum(len(row.guesses) for row in rows)
        if (len(rows), guesses) not in self._met:
            self._met.add((len(rows), guesses))
            self._clock.advance(1.0)
        self._clock.advance(0.010 + 0.002 * len(rows) + 0.001 * guesses)
        ends = [row.start + len(row.token_ids) + len(row.guesses) for row in rows]
        self.last_position = max(self.last_position, *ends)
        return super().run(rows)


@pytest.mark.parametrize("num_blocks", [2, 10_000])
def test_what_was_spent_is_found(num_blocks: int) -> None:
    """At what was measured, between it and beyond it, however small the pool; the time before a step does not count."""
    clock = FakeClock()
    runner = TimedRunner(clock, num_blocks)
    times = measure_step_times(
        runner,
        max_decodes=8,
        max_tokens=64,
        context_tokens=1000,
        clock=clock,
        before=lambda: clock.advance(5.0),
    )
    for num_decodes, num_guesses in ((1, 0), (1, 7), (3, 0), (5, 10), (8, 24), (12, 0), (2, 12)):
        expected = 0.010 + 0.002 * num_decodes + 0.001 * num_guesses
        assert times.of(num_decodes, num_guesses) == pytest.approx(expected)


def test_no_step_is_larger_than_allowed() -> None:
    """Neither in rows nor in tokens, nor does any end behind the context."""
    clock = FakeClock()
    runner = TimedRunner(clock, 100)
    times = measure_step_times(runner, max_decodes=3, max_tokens=5, context_tokens=20, clock=clock)
    assert [count for count, _ in times.lines] == [1, 2]
    assert [[each for each, _ in line] for _, line in times.lines] == [[0, 1, 3], [0, 1]]
    assert runner.last_position == 20
