"""Workers go where they are needed more, one partition gives at a time, and nobody waits for ever."""

from common.domain import Partition
from common.wire.snapshot import BacklogStatus, PartitionStatus, WorkerStatus
from scheduler.worker_moves import need_of
from scheduler.worker_need import (
    MOMENT_S,
    SLICE_S,
    Fleet,
    Kind,
    Move,
    Need,
    fleets_of,
    wanted_move,
)


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


GPU, CPU, NEXT = Kind("gpu", "r1"), Kind("cpu", "r1"), Kind("next", "r2")


def status(index: int, *kinds: Kind, backlogs: tuple[BacklogStatus, ...] = ()) -> PartitionStatus:
    """A partition with these workers, in which this waits."""
    workers = [
        WorkerStatus(
            f"w{n}", "i", kind.model_revision, 0, 8, 0, 100, 16, False, 0, kind.fingerprint
        )
        for n, kind in enumerate(kinds)
    ]
    return PartitionStatus(
        Partition("m", index), f"s{index}", [], [], workers, 0, 0.0, 1, [], backlogs=backlogs
    )


def test_a_fleet_sees_what_its_workers_may_run():
    """Requests of another revision, and started ones of other numerics, are no need of it."""
    seen = status(
        1,
        CPU,
        NEXT,
        backlogs=(
            BacklogStatus("", "r1", 5, 3000),
            BacklogStatus("", "r2", 7, 9000),
            BacklogStatus("", "", 1, 1000),
            BacklogStatus("gpu", "r1", 2, 8000),
        ),
    )
    assert need_of(Fleet("r1"), seen) == Need(Partition("m", 1), "s1", 6, 3.0, 1)
    assert need_of(Fleet("r2"), seen) == Need(Partition("m", 1), "s1", 8, 9.0, 1)
    assert need_of(Fleet("r1", "gpu"), seen) == Need(Partition("m", 1), "s1", 2, 8.0, 0)
    assert need_of(Fleet("r1", "cpu"), seen) == Need(Partition("m", 1), "s1", 0, 0.0, 1)


def test_workers_that_stand_in_for_one_another_are_a_fleet():
    """By numerics for what has started, which is looked at first, and by revision for what has not."""
    exact = [Fleet("r1", "cpu"), Fleet("r1", "gpu"), Fleet("r2", "next")]
    assert fleets_of([GPU, NEXT, CPU, GPU]) == [*exact, Fleet("r1"), Fleet("r2")]
    assert all(fleet.has(kind) for fleet, kind in zip(exact, (CPU, GPU, NEXT), strict=True))
    assert Fleet("r1").has(CPU)
    assert not Fleet("r1").has(NEXT)
    assert not Fleet("r1", "gpu").has(CPU)


def test_a_worker_does_not_go_where_it_may_run_nothing():
    """The longest backlog is one of another revision: nobody of this one moves, and a new partition still gets one."""
    foreign = status(1, NEXT, backlogs=(BacklogStatus("", "r2", 99, 60_000),))
    fleet = Fleet("r1")
    assert wanted_move(need(0, workers=1), [need_of(fleet, foreign)], has_idle=True) is None
    spread = wanted_move(need(0, workers=2), [need_of(fleet, foreign)], has_idle=True)
    assert spread == Move(need_of(fleet, foreign), from_work=False)


def test_numerics_are_not_spread_over_partitions_but_follow_what_has_started():
    """A partition without equals of a worker needs one only once something waits for it."""
    fleet = Fleet("r1", "gpu")
    without = need_of(fleet, status(1, CPU))
    assert wanted_move(need(0, workers=3), [without], has_idle=True, spreads=False) is None
    waits = need_of(fleet, status(1, CPU, backlogs=(BacklogStatus("gpu", "r1", 1, 100),)))
    moved = wanted_move(need(0, waiting=9, workers=3), [waits], has_idle=False, spreads=False)
    assert moved == Move(waits, from_work=True)
