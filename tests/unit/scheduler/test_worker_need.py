"""Workers go where they are needed more, one partition gives at a time, and nobody waits for ever."""

from common.domain import Partition
from scheduler.worker_need import MOMENT_S, SLICE_S, Move, Need, wanted_move


def need(index: int, *, waiting: int = 0, age_s: float = 0.0, workers: int = 1) -> Need:
    return Need(Partition("m", index), f"s{index}", waiting, age_s, workers)


def test_an_idle_worker_goes_to_the_longest_backlog():
    """Counted for each worker that is there already."""
    longest = need(2, waiting=10, age_s=MOMENT_S, workers=1)
    others = [need(1, waiting=12, age_s=MOMENT_S, workers=3), longest]
    assert wanted_move(need(0), others, has_idle=True) == Move(longest, from_work=False)


def test_a_backlog_of_a_moment_moves_nobody():
    """What waits for its batch to fill is no backlog."""
    assert wanted_move(need(0), [need(1, waiting=1, age_s=0.01)], has_idle=True) is None


def test_who_has_work_keeps_its_workers():
    """A worker that is idle for a moment has requests waiting here."""
    others = [need(1, waiting=9, age_s=60)]
    assert wanted_move(need(0, waiting=1), others, has_idle=True) is None
    assert wanted_move(need(0), others, has_idle=False) is None


def test_the_richest_gives_to_who_has_none():
    """Only one of several gives, and not its last idle one."""
    empty = need(2, workers=0)
    rich, poor = need(0, workers=3), need(1, workers=2)
    assert wanted_move(rich, [poor, empty], has_idle=True) == Move(empty, from_work=False)
    assert wanted_move(poor, [rich, empty], has_idle=True) is None
    assert wanted_move(need(0, workers=1), [empty], has_idle=True) is None


def test_a_new_partition_gets_a_worker_though_all_are_busy():
    """Nothing waits there, because gateways know that nobody serves it: it was added to be used."""
    empty = need(1, workers=0)
    assert wanted_move(need(0, waiting=9, workers=2), [empty], has_idle=False) == Move(
        empty, from_work=True
    )
    assert wanted_move(need(0, waiting=9, workers=1), [empty], has_idle=False) is None


def test_requests_without_any_worker_get_one_in_the_end():
    """With one busy worker for two partitions it goes round."""
    starving = need(1, waiting=1, age_s=SLICE_S, workers=0)
    own = need(0, waiting=50, workers=1)
    assert wanted_move(own, [starving], has_idle=False) == Move(starving, from_work=True)
    waiting = need(1, waiting=1, age_s=SLICE_S - 1, workers=0)
    assert wanted_move(own, [waiting], has_idle=False) is None


def test_who_has_no_worker_gives_none():
    """There is nothing to move."""
    assert wanted_move(need(0, workers=0), [need(1, waiting=1, age_s=99)], has_idle=False) is None
