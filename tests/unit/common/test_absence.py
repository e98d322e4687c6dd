"""When a lease that cannot be seen counts as gone, under every pattern of a healthy and a stalled Redis.

Time goes in beats. In each of them Redis answers or does not; the observer looks first, then the holder renews: the
worst order for the holder.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise, product

import pytest

from common.absence import Absence

LEASE = 4
BEATS = 13
PATTERNS = list(product([True, False], repeat=BEATS))


def observe(is_up: Sequence[bool], renews: Callable[[int], bool]) -> Iterator[bool | None]:
    """The verdict of each beat's look, None where Redis does not answer; `renews`: whether the holder tries to."""
    absence, stands_until = Absence(LEASE, max_gap_s=2), LEASE
    for beat, up in enumerate(is_up):
        if not up:
            absence.interrupt()
            yield None
            continue
        yield absence.saw(present=beat < stands_until, asked_s=beat, now_s=beat)
        if renews(beat):
            stands_until = beat + LEASE


def num_observed(is_up: Sequence[bool], since: int) -> int:
    """Beats between two looks that followed each other, from `since` on."""
    return sum(one and other for one, other in pairwise(is_up[since:]))


def test_a_stalled_redis_makes_nobody_take_over():
    """A holder that lives renews whenever Redis is there: its lease never counts as gone."""
    for is_up in PATTERNS:
        assert True not in observe(is_up, lambda _: True), is_up


def test_a_dead_holder_is_replaced_while_redis_is_hurt():
    """Exactly once a lease of observed time has come together, as long as no hole is as long as a lease."""
    for is_up in PATTERNS:
        holes = [len([*run]) for up, run in groupby(is_up) if not up]
        if max(holes, default=0) >= LEASE - 1:
            continue
        for beat, verdict in enumerate(observe(is_up, lambda _: False)):
            if verdict is not None and beat >= LEASE:
                expected = num_observed(is_up[: beat + 1], LEASE) >= LEASE
                assert verdict == expected, (is_up, beat)


@pytest.mark.parametrize("taken", range(1, BEATS - LEASE))
def test_a_lease_that_was_taken_in_a_hole_is_noticed(taken: int):
    """Somebody took it for one lease, seen or unseen: it counts as gone a lease of observed time after its end."""
    for is_up in PATTERNS:
        for beat, verdict in enumerate(observe(is_up, lambda now: now == taken)):
            if verdict and beat > taken and is_up[taken]:
                assert num_observed(is_up[: beat + 1], taken + LEASE) >= LEASE, (is_up, beat)


def test_a_slow_answer_hides_no_lease():
    """A hole is measured from the asking of the look before it: its answer may have been long on its way."""
    for asked_s, keeps_count in ((2.9, True), (1.0, False)):
        absence = Absence(LEASE, max_gap_s=3)
        assert not absence.saw(present=False, asked_s=0.0, now_s=0.0)
        assert not absence.saw(present=False, asked_s=asked_s, now_s=3.0)
        absence.interrupt()
        assert not absence.saw(present=False, asked_s=5.0, now_s=5.0)
        assert absence.saw(present=False, asked_s=7.0, now_s=7.0) == keeps_count
