"""Who is at the engine: groups that wait for room, and groups that run, oldest first."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator

from worker.engine.group import SequenceGroup
from worker.engine.sequence import Sequence

EXPECTED_S = 10.0
"""Somebody who came while others were here is followed by another within so long, for all that is known."""

MAX_OVERTAKES = 8
"""A group that does not fit yet delays the others for a while at most, and waits for a few of them at most."""


class Roster:
    """Every group is in exactly one of the two places, oldest first in both; only running ones hold blocks."""

    def __init__(self) -> None:
        """Nobody."""
        self.waiting: deque[SequenceGroup] = deque()
        self.running: list[SequenceGroup] = []
        self._met_s = float("-inf")

    @property
    def groups(self) -> list[SequenceGroup]:
        """All groups, oldest first; a copy, so that groups may leave while it is read."""
        return [*self.running, *self.waiting]

    @property
    def sequences(self) -> Iterator[Sequence]:
        """The sequences of all groups."""
        return (sequence for group in self.groups for sequence in group.sequences)

    @property
    def running_sequences(self) -> Iterator[Sequence]:
        """The sequences that run and have not ended."""
        return (sequence for group in self.running for sequence in group.live)

    @property
    def working_sequences(self) -> Iterator[Sequence]:
        """The running sequences that have something to compute now."""
        return (sequence for group in self.running for sequence in group.working)

    def enter(self, group: SequenceGroup, now_s: float) -> None:
        """Behind everybody who waits."""
        if self.waiting or self.running:
            self._met_s = now_s
        self.waiting.append(group)

    def expects_others(self, now_s: float) -> bool:
        """Whether somebody is likely to come while others are here: not where each comes when the one before has gone."""
        return now_s - self._met_s < EXPECTED_S

    def find(self, request_id: str, attempt: int | None = None) -> SequenceGroup | None:
        """The group of a request, if it is here and of this attempt (None for any)."""
        for group in self.groups:
            ticket = group.job.ticket
            if ticket.request_id == request_id and attempt in (None, ticket.attempt):
                return group
        return None

    def youngest_live(self) -> SequenceGroup | None:
        """The youngest running group that has not ended."""
        return next((group for group in reversed(self.running) if group.live), None)

    def try_join(self, try_seat: Callable[[SequenceGroup], bool]) -> bool:
        """Let the first waiting group run that finds a seat; whether one did.

        The first in the line is overtaken so often and no more: then what becomes free is kept for it. One that made
        room for others before is not overtaken at all.
        """
        for group in self.waiting:
            if try_seat(group):
                if group is not self.waiting[0]:
                    self.waiting[0].num_overtakes += 1
                self.waiting.remove(group)
                insort(self.running, group, key=_age)
                return True
            first = self.waiting[0]
            if first.parked_since_s is not None or first.num_overtakes >= MAX_OVERTAKES:
                return False
        return False

    def park(self, group: SequenceGroup) -> None:
        """Let a running group wait, in front of everybody younger."""
        self.running.remove(group)
        waiting = sorted([*self.waiting, group], key=_age)
        self.waiting = deque(waiting)

    def forget(self, group: SequenceGroup) -> None:
        """Part with a group and free its blocks."""
        group.release()
        if group in self.running:
            self.running.remove(group)
        else:
            self.waiting.remove(group)


def _age(group: SequenceGroup) -> int:
    return group.number
