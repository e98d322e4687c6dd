"""Which partition of a model needs a worker of this one more: a pure rule over what all leaders' snapshots say.

1. An idle worker goes where most waits for each worker, once the oldest has waited for a moment.
2. One that is not the last goes where there is none, an idle one at once, else a busy one that was here for a slice
   of time: gateways send no requests to a partition without workers, so nothing that waits there would ask for one.
3. The last one goes where there is none and requests have waited for long: with fewer workers than partitions the
   workers go round, in slices of time, and nobody waits for ever.

Where several could give, the one with most workers does (the lowest index among equals), so that one gives and not all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.domain import Partition
from common.lengths import LENGTHS

MOMENT_S = LENGTHS.snapshot_s
SLICE_S = 5 * LENGTHS.snapshot_s


@dataclass(frozen=True, slots=True)
class Need:
    """A partition as its leader's snapshot shows it; ``num_workers`` are those that take new requests."""

    partition: Partition
    address: str
    num_waiting: int
    oldest_age_s: float
    num_workers: int


@dataclass(frozen=True, slots=True)
class Move:
    """A worker should go to ``target``; ``from_work``: though all are busy."""

    target: Need
    from_work: bool


def wanted_move(own: Need, others: Sequence[Need], *, has_idle: bool) -> Move | None:
    """What a worker of ``own`` should do for ``others``; ``has_idle``: one of them runs nothing."""
    if not own.num_workers:
        return None
    if has_idle and not own.num_waiting:
        pressed = [one for one in others if one.num_waiting and one.oldest_age_s >= MOMENT_S]
        if pressed:
            longest = max(pressed, key=lambda one: one.num_waiting / (one.num_workers + 1))
            return Move(longest, from_work=False)
    without = [one for one in others if not one.num_workers]
    if not without or not _gives(own, others):
        return None
    neediest = max(without, key=lambda one: (one.oldest_age_s, -one.partition.index))
    if own.num_workers > 1:
        return Move(neediest, from_work=not has_idle)
    if neediest.num_waiting and neediest.oldest_age_s >= SLICE_S:
        return Move(neediest, from_work=True)
    return None


def _gives(own: Need, others: Sequence[Need]) -> bool:
    rank = (-own.num_workers, own.partition.index)
    return all(rank < (-one.num_workers, one.partition.index) for one in others)
