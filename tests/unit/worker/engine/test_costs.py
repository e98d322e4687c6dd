"""Costs are read off a runner's own times."""

from collections.abc import Sequence

import pytest

from tests.support.fake_clock import FakeClock
from worker.engine.block_store import BlockStore
from worker.engine.costs import StepCosts, measure_costs
from worker.engine.runner import Row, RowResult
from worker.engine.step_times import StepTimes

DECODES_S = {1: 0.004, 2: 0.005, 4: 0.007, 8: 0.011, 16: 0.019}


class TimedRunner:
    """Takes 1 ms for a token, and as much again for each ``context_tokens`` tokens that it looks back at; decodes less."""

    block_size = 16

    def __init__(self, clock: FakeClock, num_blocks: int, context_tokens: float) -> None:
        self.num_blocks = num_blocks
        self._clock = clock
        self._context_tokens = context_tokens
        self.num_runs = 0

    @property
    def blocks(self) -> BlockStore:
        return self

    def copy(self, source: int, target: int) -> None:
        raise NotImplementedError

    def read(self, block_id: int) -> bytes:
        self._clock.advance(0.25)
        return b"x"

    def write(self, block_id: int, content: bytes) -> None:
        assert content == b"x"
        self._clock.advance(0.5)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        for row in rows:
            assert (row.start + len(row.token_ids)) <= len(row.block_ids) * self.block_size
            assert max(row.block_ids) < self.num_blocks
        self.num_runs += 1
        hiccup = 1.0 if self.num_runs % 3 == 1 else 0.0
        if len(row.token_ids) == 1:
            self._clock.advance(hiccup + DECODES_S[len(rows)])
            return [None] * len(rows)
        self._clock.advance(
            hiccup + 0.001 * len(row.token_ids) * (1 + row.start / self._context_tokens)
        )
        return [None]


@pytest.mark.parametrize("num_blocks", [3, 8, 10_000])
def test_what_was_spent_is_found(num_blocks: int) -> None:
    """All numbers come out as they went in, however small the pool, and disturbed runs do not count."""
    clock = FakeClock()
    costs = measure_costs(TimedRunner(clock, num_blocks, 500.0), 512, 16, 10**6, clock)
    assert costs.token_s == pytest.approx(0.001)
    assert costs.block_copy_s == pytest.approx(0.75)
    assert costs.decodes.of(4) == pytest.approx(DECODES_S[4])
    assert costs.decodes.of(12) == pytest.approx((DECODES_S[8] + DECODES_S[16]) / 2)
    if num_blocks > 4:
        assert costs.context_tokens == pytest.approx(500.0)


def test_no_time_means_no_costs() -> None:
    """A runner that takes no time is no reason to divide by it."""
    clock = FakeClock()
    costs = measure_costs(TimedRunner(clock, 100, float("inf")), 512, 16, 10**6, lambda: 0.0)
    assert (costs.token_s, costs.context_tokens) == (0.0, float("inf"))


def test_copying_is_chosen_where_it_is_faster() -> None:
    """Sixteen tokens a block: computing them takes 16 ms near the beginning, and more for a long text."""
    for copy_s, is_better in ((0.010, True), (0.020, False)):
        costs = StepCosts(token_s=0.001, block_copy_s=copy_s)
        assert costs.saves_time(10, 160) == is_better
    far = StepCosts(token_s=0.001, context_tokens=100, block_copy_s=0.020)
    assert far.saves_time(10, 160)
    assert not StepCosts().saves_time(1, 1000)


def test_a_prompt_is_long_by_what_is_left_to_compute():
    """Half a second is: of a text that was found for the most part, it is the rest that counts; and looking back counts."""
    costs = StepCosts(token_s=0.001)
    assert [costs.is_long(0, count) for count in (500, 501)] == [False, True]
    assert [costs.is_long(7000, 7000 + count) for count in (499, 502)] == [False, True]
    far = StepCosts(token_s=0.001, context_tokens=1000)
    assert [far.is_long(7000, 7000 + count) for count in (60, 70)] == [False, True]
    assert not StepCosts().is_long(0, 10**9)


@pytest.mark.parametrize("context_tokens", [16, 64, 300])
def test_no_position_lies_beyond_the_context(context_tokens):
    """A pool may be larger than the context, and learned positions end with it."""
    clock = FakeClock()
    runner = TimedRunner(clock, 4000, 500.0)
    ends: list[int] = []

    def run(rows: Sequence[Row]) -> list[RowResult]:
        ends.append(rows[0].start + len(rows[0].token_ids))
        return TimedRunner.run(runner, rows)

    runner.run = run
    measure_costs(runner, 512, 16, context_tokens, clock)
    assert max(ends) == context_tokens


def test_decodes_that_were_timed_are_not_timed_again():
    """Who guesses has timed them, with guesses and without."""
    clock = FakeClock()
    runner, known = TimedRunner(clock, 100, 500.0), StepTimes.flat(0.25)
    afresh = measure_costs(runner, 512, 16, 10**6, clock)
    took_s = clock()
    costs = measure_costs(runner, 512, 16, 10**6, clock, known)
    assert costs.decodes is known
    assert clock() - took_s < took_s
    assert (costs.token_s, costs.context_tokens) == (afresh.token_s, afresh.context_tokens)
