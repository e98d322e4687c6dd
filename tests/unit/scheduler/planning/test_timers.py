"""Timers: what is due, and no growth by what was dropped."""

from scheduler.planning.timers import Timers
from scheduler.planning.waiting import Entry
from tests.support.planning import make_request


def _entry(number: int) -> Entry:
    request = make_request(str(number))
    return Entry(request, number, due_s=0.0, bucket=0)


def test_due_entries_come_out_in_order_of_time():
    """Exactly the entries whose time has come are taken out, earliest first."""
    timers, entries = Timers(), [_entry(n) for n in range(4)]
    for entry, at_s in zip(entries, (3.0, 1.0, 2.0, 9.0), strict=True):
        timers.set(entry, at_s)
    timers.drop(entries[2])
    assert [e.number for e in timers.pop_due(3.0)] == [1, 0]
    assert timers.next_s() == 9.0
    assert len(timers) == 1


def test_a_time_can_be_changed():
    """The last time set is the one that counts."""
    timers, entry = Timers(), _entry(0)
    timers.set(entry, 1.0)
    timers.set(entry, 5.0)
    assert timers.pop_due(2.0) == []
    assert timers.pop_due(5.0) == [entry]
    timers.drop(entry)
    assert timers.next_s() is None


def test_dropped_entries_do_not_pile_up():
    """The heap stays within a constant of twice what is live, wherever the dropped times lie."""
    timers = Timers()
    for number in range(10_000):
        entry = _entry(number)
        timers.set(entry, 10_000.0 - number)
        timers.drop(entry)
    assert len(timers._heap) <= 65
