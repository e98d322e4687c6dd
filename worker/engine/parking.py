"""Makes room when blocks run out: the youngest group parts with its blocks and goes on when there is room again.

    running ──▶ parked, its blocks' contents in host memory   where copying them twice is faster than computing them
            ──▶ parked, nothing kept                          else; what the prefix cache still holds is found again
    parked  ──▶ running, in its old place by age
            ──▶ given back                                    when that takes too long: another worker may have room

The oldest is never the victim of another, and no group runs that could not finish alone: so the oldest always
advances, and everybody becomes the oldest. A group goes on only where all that run can then go on for a while.
"""

from worker.engine.costs import StepCosts
from worker.engine.group import SequenceGroup
from worker.engine.job import Ticket
from worker.engine.limits import EngineLimits
from worker.engine.memory import KvMemory
from worker.engine.roster import Roster

AHEAD_TOKENS = 32
"""A group joins only where everybody can then generate so many tokens before blocks run out."""


class Parking:
    """Which groups hold blocks: lets them join, and makes them wait."""

    def __init__(
        self, memory: KvMemory, roster: Roster, limits: EngineLimits, costs: StepCosts
    ) -> None:
        """Nobody is parked."""
        self._memory = memory
        self._roster = roster
        self._limits = limits
        self._costs = costs
        self._preempted: list[Ticket] = []
        self._swapped_blocks = 0

    def make_room(self, now_s: float) -> None:
        """Cover every known token of what runs; where blocks are missing, the youngest is parked."""
        for sequence in self._roster.sequences:
            if sequence.finish is not None:
                sequence.blocks.release()
        for group in list(self._roster.running):
            while group in self._roster.running and not self._memory.try_grow(group):
                youngest = self._roster.youngest_live()
                assert youngest is not None
                self._park(youngest, now_s)

    def try_seat(self, group: SequenceGroup) -> bool:
        """Give a waiting group its blocks, if there are slots, and room for everybody to go on for a while."""
        num_running = sum(1 for _ in self._roster.running_sequences)
        if num_running + len(group.live) > self._limits.max_seqs:
            return False
        reserve = self._reserve_for(group)
        if group.saved is not None and group.live:
            seated = self._memory.try_restore(group, reserve)
        else:
            seated = self._memory.try_seat(group, reserve)
        if seated:
            group.parked_since_s = None
        return seated

    def overdue(self, now_s: float) -> list[SequenceGroup]:
        """Parked groups that have waited too long."""
        return [
            group
            for group in self._roster.waiting
            if group.parked_since_s is not None
            and now_s - group.parked_since_s >= self._limits.park_s
        ]

    def take_preempted(self) -> tuple[tuple[Ticket, ...], int]:
        """Groups pre-empted, and how many blocks were swapped out, since the last call."""
        taken = tuple(self._preempted), self._swapped_blocks
        self._preempted, self._swapped_blocks = [], 0
        return taken

    def _reserve_for(self, group: SequenceGroup) -> int:
        size, running = self._memory.pool.block_size, self._roster.running
        if not any(other.live for other in running):
            return 0
        others = sum(other.missing_blocks(size, AHEAD_TOKENS) for other in running)
        return others + group.missing_blocks(size, AHEAD_TOKENS) - group.missing_blocks(size, 0)

    def _park(self, group: SequenceGroup, now_s: float) -> None:
        self._preempted.append(group.job.ticket)
        group.parked_since_s = now_s
        num_blocks = len({b for s in group.live for b in s.blocks.held})
        in_use = sum(len(other.saved) for other in self._roster.waiting if other.saved is not None)
        has_room = in_use + num_blocks <= self._limits.swap_blocks
        if has_room and self._costs.saves_time(num_blocks, group.num_computed):
            self._swapped_blocks += num_blocks
            self._memory.save(group)
        else:
            self._memory.drop(group)
        self._roster.park(group)
