"""A short, bounded memory of what has just ended."""

from gateway.relay.recent_ends import KEEP_S, MAX_ENDS, RecentEnds
from tests.support.fake_clock import FakeClock


def test_it_forgets_in_time() -> None:
    """What is older than the bound is not known any more."""
    clock = FakeClock()
    ends = RecentEnds(clock)
    ends.note("a")
    clock.advance(KEEP_S)
    assert "a" in ends
    assert "b" not in ends
    clock.advance(0.1)
    assert "a" not in ends


def test_it_never_grows_beyond_its_bound() -> None:
    """The oldest go first."""
    ends = RecentEnds(FakeClock())
    for number in range(MAX_ENDS + 1):
        ends.note(str(number))
    assert "0" not in ends
    assert "1" in ends
    assert str(MAX_ENDS) in ends
