"""Which partition of a model needs a worker of this one more: a pure rule over what all leaders' snapshots say.

1. An idle worker goes where most waits for each worker, once the oldest has waited for a moment.
2. One that is not the last goes where there is none, an idle one at once, else a busy one that was here for a slice
   of time: gateways send no requests to a partition without workers, so nothing that waits there would ask for one.
3. The last one goes where there is none and requests have waited for long: with fewer workers than partitions the
   workers go round, in slices of time, and nobody waits for ever.

Where several could give, the one with most workers does (the lowest index among equals), so that one gives and not all.

Each rule looks at one ``Fleet`` at a time: at workers that may stand in for one another, and at what they may run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.domain import Partition
from common.lengths import LENGTHS
from scheduler.planning.waiting import LaneKey

MOMENT_S = LENGTHS.snapshot_s
SLICE_S = 5 * LENGTHS.snapshot_s


class Backlog(Protocol):
    """Waiting requests that need the same of a worker; ``fingerprint`` is empty for those that have not started."""

    @property
    def fingerprint(self) -> str:
        """Equal numerics."""

    @property
    def model_revision(self) -> str:
        """The revision; empty for any."""

    @property
    def num_waiting(self) -> int:
        """How many."""

    @property
    def oldest_age_ms(self) -> int:
        """How long the oldest one has waited."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a worker is, as far as it decides what the worker may run."""

    fingerprint: str
    model_revision: str

    def serves(self, backlog: Backlog) -> bool:
        """Whether it may run these requests."""
        lane = LaneKey(backlog.fingerprint or None, backlog.model_revision)
        return lane.is_served_by(self.fingerprint, self.model_revision)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers of one revision, for what has not started; with a fingerprint those of equal numerics, for what has.

    Only the former are spread: a partition that nothing waits in needs some worker, and not one of each numerics.
    """

    model_revision: str
    fingerprint: str = ""

    def has(self, kind: Kind) -> bool:
        """Whether a worker belongs to it."""
        if self.fingerprint:
            return kind.fingerprint == self.fingerprint
        return kind.model_revision == self.model_revision

    def need(
        self,
        partition: Partition,
        address: str,
        backlogs: Iterable[Backlog],
        kinds: Iterable[Kind],
    ) -> "Need":
        """How much a partition needs workers of this fleet, with these ``kinds`` of workers that take new requests."""
        started = bool(self.fingerprint)
        member = Kind(self.fingerprint, self.model_revision)
        wanted = [
            one for one in backlogs if bool(one.fingerprint) is started and member.serves(one)
        ]
        return Need(
            partition,
            address,
            sum(one.num_waiting for one in wanted),
            max((one.oldest_age_ms for one in wanted), default=0) / 1000,
            sum(map(self.has, kinds)),
        )


def fleets_of(kinds: Iterable[Kind]) -> list[Fleet]:
    """The fleets of these workers; what has started comes first, because fewer workers may run it."""
    known = list(kinds)
    exact = sorted({(one.model_revision, one.fingerprint) for one in known})
    revisions = sorted({one.model_revision for one in known})
    return [*(Fleet(*names) for names in exact), *map(Fleet, revisions)]


@dataclass(frozen=True, slots=True)
class Need:
    """A partition as a fleet sees it; ``num_workers`` are those of the fleet that take new requests."""

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


def wanted_move(
    own: Need, others: Sequence[Need], *, has_idle: bool, spreads: bool = True
) -> Move | None:
    """What a worker of ``own`` should do for ``others``; ``has_idle``: one of them runs nothing.

    Unless the fleet ``spreads``, a partition in which nothing waits for it needs none of it.
    """
    if not own.num_workers:
        return None
    if has_idle and not own.num_waiting:
        pressed = [one for one in others if one.num_waiting and one.oldest_age_s >= MOMENT_S]
        if pressed:
            longest = max(pressed, key=lambda one: one.num_waiting / (one.num_workers + 1))
            return Move(longest, from_work=False)
    without = [one for one in others if not one.num_workers and (spreads or one.num_waiting)]
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
