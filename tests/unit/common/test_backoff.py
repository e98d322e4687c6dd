"""Back-off delays: bounded, growing, jittered."""

import itertools
import random

import pytest

from common.backoff import Random, backoff_delays_s


def first(count: int, draw: Random, **bounds: float) -> list[float]:
    return list(itertools.islice(backoff_delays_s(draw, **bounds), count))


def test_delays_double_up_to_the_cap():
    """With the jitter at its top, the ceilings themselves show."""
    assert first(5, lambda: 1.0, first_s=0.1, max_s=0.5) == pytest.approx(
        [0.1, 0.2, 0.4, 0.5, 0.5]
    )


def test_every_delay_lies_in_the_upper_half_of_its_ceiling():
    """Never hammering, never late, for a thousand draws."""
    draw = random.Random(7).random
    for delay in first(1000, draw, first_s=1.0, max_s=1.0):
        assert 0.5 <= delay < 1.0


def test_two_callers_do_not_march_in_step():
    """Jitter spreads those who failed together."""
    assert first(3, random.Random(1).random) != first(3, random.Random(2).random)


def test_it_never_ends_and_never_overflows():
    """A peer may stay away for days."""
    *_, last = first(5000, lambda: 0.0, max_s=5.0)
    assert last == 2.5
