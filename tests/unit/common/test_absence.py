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


def observe(
    is_up: Sequence[bool], renews: Callable[[int], bool], *, is_told: bool
) -> Iterator[bool | None]:
    """The verdict of each beat's look, None where Redis does not answer; `renews`: whether the holder tries to.

    `is_told`: whether a look at a lease that is there tells how old it is. It was renewed in beat 0.
    """
    absence, renewed = Absence(LEASE, max_gap_s=2), 0
    for beat, up in enumerate(is_up):
        if not up:
            absence.interrupt()
            yield None
            continue
        yield absence.saw(
            present=beat < renewed + LEASE,
            asked_s=beat,
            now_s=beat,
            renewed_ago_s=beat - renewed if is_told else None,
        )
        if renews(beat):
            renewed = beat


def num_observed(is_up: Sequence[bool], since: int) -> int:
    """Beats between two looks that followed each other, from `since` on."""
    return sum(one and other for one, other in pairwise(is_up[since:]))


@pytest.mark.parametrize("is_told", [False, True])
def test_a_stalled_redis_makes_nobody_take_over(is_told: bool):
    """A holder that lives renews whenever Redis is there: its lease never counts as gone."""
    for is_up in PATTERNS:
        assert True not in observe(is_up, lambda _: True, is_told=is_told), is_up


@pytest.mark.parametrize(("is_told", "silent_since"), [(False, LEASE), (True, 0)])
def test_a_dead_holder_is_replaced_while_redis_is_hurt(is_told: bool, silent_since: int):
    """Exactly once a lease of observed time has come together, as long as no hole is as long as a lease.

    Where all is healthy and renewals are told, that is when the lease runs out.
    """
    for is_up in PATTERNS:
        holes = [len([*run]) for up, run in groupby(is_up) if not up]
        if max(holes, default=0) >= LEASE - 1:
            continue
        for beat, verdict in enumerate(observe(is_up, lambda _: False, is_told=is_told)):
            if verdict is not None and beat >= LEASE:
                expected = num_observed(is_up[: beat + 1], silent_since) >= LEASE
                assert verdict == expected, (is_up, beat)


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("taken", range(1, BEATS - LEASE))
def test_a_lease_that_was_taken_in_a_hole_is_noticed(taken: int, is_told: bool):
    """Somebody took it for one lease, seen or unseen: it counts as gone a lease of observed time later."""
    for is_up in PATTERNS:
        verdicts = observe(is_up, lambda now: now == taken, is_told=is_told)
        silent_since = taken if is_told else taken + LEASE
        for beat, verdict in enumerate(verdicts):
            if verdict and beat > taken and is_up[taken]:
                assert beat >= taken + LEASE, (is_up, beat)
                assert num_observed(is_up[: beat + 1], silent_since) >= LEASE, (is_up, beat)


def test_silence_begins_with_the_renewal():
    """The part of an observed time that lies behind the last renewal counts; what was not observed does not."""
    absence = Absence(LEASE, max_gap_s=2)
    assert not absence.saw(present=True, asked_s=10.0, now_s=10.0, renewed_ago_s=3.0)
    assert absence.remaining_s == LEASE
    assert not absence.saw(present=True, asked_s=11.0, now_s=11.0, renewed_ago_s=0.75)
    assert absence.remaining_s == LEASE - 0.75
    assert not absence.saw(present=True, asked_s=12.0, now_s=12.0, renewed_ago_s=1.75)
    assert not absence.saw(present=True, asked_s=14.0, now_s=14.0, renewed_ago_s=3.75)
    assert absence.remaining_s == 0.25
    assert absence.saw(present=False, asked_s=14.25, now_s=14.25)


def test_a_slow_answer_hides_no_lease():
    """A hole is measured from the asking of the look before it: its answer may have been long on its way."""
    for asked_s, keeps_count in ((2.9, True), (1.0, False)):
        absence = Absence(LEASE, max_gap_s=3)
        assert not absence.saw(present=False, asked_s=0.0, now_s=0.0)
        assert not absence.saw(present=False, asked_s=asked_s, now_s=3.0)
        absence.interrupt()
        assert not absence.saw(present=False, asked_s=5.0, now_s=5.0)
        assert absence.saw(present=False, asked_s=7.0, now_s=7.0) == keeps_count
