"""A gateway knows from the renewals of its lease whether others still count on it."""

from common.lengths import LENGTHS
from gateway.relay.returning import Attendance

LEASE_S = LENGTHS.gateway_lease_s


def test_a_lease_that_was_never_held_is_not_missed():
    """It has no followers to lose."""
    attendance = Attendance()
    assert not attendance.is_away(1e6)
    assert not attendance.was_away(1e6)
    assert not attendance.renewed(1e6, 1e6 + 1)


def test_an_absence_is_known_while_it_lasts_and_for_a_moment_after():
    """It begins a lease after the last renewal was asked for, and the renewal that ends it says so."""
    attendance = Attendance()
    attendance.renewed(10.0, 10.5)
    assert not attendance.is_away(10.0 + LEASE_S)
    gone_s = 10.1 + LEASE_S
    assert attendance.is_away(gone_s)
    assert attendance.was_away(gone_s)
    assert attendance.renewed(gone_s + 20.0, gone_s + 20.1)
    assert not attendance.is_away(gone_s + 20.2)
    assert attendance.was_away(gone_s + 21.0)
    for late_s in range(22, 40, 2):
        assert not attendance.renewed(gone_s + late_s, gone_s + late_s + 0.1)
    assert not attendance.was_away(gone_s + 40.0)


def test_a_lease_that_ran_out_while_it_was_asked_for_was_missing():
    """Nobody knows when the answer that came late was given."""
    attendance = Attendance()
    attendance.renewed(0.0, 0.1)
    assert attendance.renewed(LEASE_S - 1.0, LEASE_S + 0.1)
