"""Whether a model gets one partition more: when the process that leads its only partition here is short of CPU time.

    led here        schedulers     partitions     what helps a busy leader
    two or more     more           any            giving one away (``balance``)
    one             more           fewer          one partition more, for the scheduler that leads nothing
    one             as many        as many        nothing: everybody leads already

A partition is for ever, and order, fairness and deadlines hold within one: so only a load that lasts adds one, up to a
number that an operator has set. Pure; times come from outside.
"""

from dataclasses import dataclass

from common.domain import Partition

MIN_WORKERS = 2
"""The new partition gets one of them."""

# A share of less time says more about one long step than about the load.
_MIN_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class GrowthRule:
    """When a model gets one partition more: ``cpu_share`` of a core was used for ``lasting_s``, up to ``most``."""

    most: int
    cpu_share: float
    lasting_s: float


@dataclass(frozen=True, slots=True)
class Lead:
    """The one partition that is led here, how many its model has, and how many workers serve it."""

    partition: Partition
    num_partitions: int
    num_workers: int


class Growth:
    """How busy this process was at each look, and since when it is too busy."""

    def __init__(self, rule: GrowthRule) -> None:
        """Not busy."""
        self._rule = rule
        self._looked: tuple[float, float] | None = None
        self._busy_since_s: float | None = None

    def look(
        self, lead: Lead | None, *, has_idle_scheduler: bool, cpu_s: float, now_s: float
    ) -> bool:
        """Whether ``lead``'s model is to get a partition more now; ``cpu_s`` is what this process has used so far.

        ``lead``: None when this process leads none or several.
        """
        if self._looked is None:
            self._looked = now_s, cpu_s
            return False
        looked_s, used_s = self._looked
        if now_s - looked_s < _MIN_LOOK_S:
            return False
        self._looked = now_s, cpu_s
        if not self._can_grow(lead, has_idle_scheduler=has_idle_scheduler) or (
            cpu_s - used_s < self._rule.cpu_share * (now_s - looked_s)
        ):
            self._busy_since_s = None
            return False
        if self._busy_since_s is None:
            self._busy_since_s = looked_s
        if now_s - self._busy_since_s < self._rule.lasting_s:
            return False
        self._busy_since_s = None
        return True

    def _can_grow(self, lead: Lead | None, *, has_idle_scheduler: bool) -> bool:
        return (
            lead is not None
            and has_idle_scheduler
            and lead.num_partitions < self._rule.most
            and lead.num_workers >= MIN_WORKERS
        )
