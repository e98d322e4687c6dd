"""Until when a leader may write."""

from scheduler.lease import LEASE_S, MARGIN_S, HeldLease
from tests.support.fake_clock import FakeClock


def test_it_counts_from_the_moment_of_asking():
    """A renewal whose answer took a second holds a second less."""
    clock = FakeClock()
    lease = HeldLease(clock)
    asked_s = clock()
    clock.advance(1.0)
    lease.renewed(asked_s)
    assert lease.remaining_s == LEASE_S - MARGIN_S - 1.0
    clock.advance(lease.remaining_s)
    assert not lease.holds
    clock.advance(2.0)
    assert lease.lapsed_s == 2.0


def test_a_lost_lease_does_not_hold():
    """Once somebody else has it, nothing may be written, however fresh the last renewal was."""
    clock = FakeClock()
    lease = HeldLease(clock)
    lease.renewed(clock())
    lease.lost()
    assert not lease.holds
    assert lease.remaining_s == 0
