"""How many partitions one scheduler should lead: an equal share, rounded up. Pure; times come from outside.

    partitions  0 1 2 3 4        a share of ceil(5 / 2) = 3: who leads more gives one away at a time,
    leaders     a a a b b        and who has a share leaves free ones to the others for a lease

A free partition is taken by everybody in the end: better one scheduler with too many than one without a leader.
"""

from common.domain import Partition
from common.lengths import LENGTHS

# A scheduler that comes and goes again within this should not set partitions in motion.
STEADY_LOOKS = 3
PATIENCE_S = LENGTHS.leader_lease_s


class Balance:
    """What this scheduler leads, beside how many there are to lead."""

    def __init__(self) -> None:
        """Alone, and nothing led."""
        self._num_schedulers = 1
        self._num_partitions = 0
        self._led: list[Partition] = []
        self._num_looks = 0
        self._free_since_s: dict[Partition, float] = {}

    @property
    def share(self) -> int:
        """Partitions that are enough."""
        return max(1, -(-self._num_partitions // self._num_schedulers))

    @property
    def only_led(self) -> Partition | None:
        """The partition that this scheduler leads, if it leads just one."""
        return self._led[0] if len(self._led) == 1 else None

    def look(self, num_schedulers: int, num_partitions: int) -> Partition | None:
        """So many live, and so many there are; answers a partition that should be given away now."""
        self._num_schedulers = max(1, num_schedulers)
        self._num_partitions = num_partitions
        if len(self._led) <= self.share:
            self._num_looks = 0
            return None
        self._num_looks += 1
        if self._num_looks < STEADY_LOOKS:
            return None
        self._num_looks = 0
        return self._led[-1]

    def leads(self, partition: Partition) -> None:
        """This scheduler leads it from now on."""
        self._free_since_s.pop(partition, None)
        self._led.append(partition)

    def left(self, partition: Partition) -> None:
        """It does not any more."""
        self._led.remove(partition)

    def may_take(self, partition: Partition, now_s: float) -> bool:
        """Whether to take a partition that is free now; it will be asked again."""
        if len(self._led) < self.share:
            return True
        since_s = self._free_since_s.setdefault(partition, now_s)
        return now_s - since_s >= PATIENCE_S

    def is_led(self, partition: Partition) -> None:
        """Somebody leads it."""
        self._free_since_s.pop(partition, None)
