"""Who is at the engine: groups that wait for room, and groups that run, oldest first."""

from collections import deque
from collections.abc import Iterator

from worker.engine.group import SequenceGroup
from worker.engine.sequence import Sequence


class Roster:
    """Every group is in exactly one of the two places; only running ones hold blocks."""

    def __init__(self) -> None:
        """Nobody."""
        self.waiting: deque[SequenceGroup] = deque()
        self.running: list[SequenceGroup] = []

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

    def find(self, request_id: str, attempt: int | None = None) -> SequenceGroup | None:
        """The group of a request, if it is here and of this attempt (None for any)."""
        for group in self.groups:
            ticket = group.job.ticket
            if ticket.request_id == request_id and attempt in (None, ticket.attempt):
                return group
        return None

    def youngest_live(self) -> SequenceGroup | None:
        """The running group that joined last and has not ended."""
        return next((group for group in reversed(self.running) if group.live), None)

    def join(self) -> SequenceGroup:
        """Let the first waiting group run."""
        group = self.waiting.popleft()
        self.running.append(group)
        return group

    def forget(self, group: SequenceGroup) -> None:
        """Part with a group and free its blocks."""
        group.release()
        if group in self.running:
            self.running.remove(group)
        else:
            self.waiting.remove(group)
