"""How many partitions each model has: as many as were configured, and more where ``growth`` says so."""

import time
from collections.abc import Callable

from common.domain import Clock, Partition
from common.errors import Unavailable
from common.logs import Log
from common.streams import cards
from common.streams.node import Node
from scheduler.balance import Balance
from scheduler.growth import Growth, GrowthRule, Lead

_TIMEOUT_S = 2.0


class PartitionCounts:
    """The counts in the store, which only rise."""

    def __init__(
        self,
        node: Node,
        balance: Balance,
        *,
        least: int,
        rule: GrowthRule,
        num_workers: Callable[[Partition], int],
        clock: Clock,
        log: Log,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        """``least`` partitions for each model; ``num_workers`` serve a partition that is led here."""
        self._node = node
        self._balance = balance
        self._least = least
        self._growth = Growth(rule)
        self._num_workers = num_workers
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._log = log
        self._counts: dict[str, int] = {}

    async def of(self, model: str) -> int:
        """Partitions that a model has.

        Raises:
            Unavailable: the store gives no definite answer.
        """
        count = self._counts[model] = await cards.raise_partition_count(
            self._node, model, self._least, bound_s=_TIMEOUT_S
        )
        return count

    async def look(self, num_schedulers: int) -> None:
        """So many schedulers live: see whether the model that is led here needs a partition more."""
        lead = self._lead()
        is_wanted = self._growth.look(
            lead,
            has_idle_scheduler=num_schedulers > sum(self._counts.values()),
            cpu_s=self._cpu_clock(),
            now_s=self._clock(),
        )
        if lead is None or not is_wanted:
            return
        model, wanted = lead.partition.model, lead.num_partitions + 1
        try:
            count = await cards.raise_partition_count(
                self._node, model, wanted, bound_s=_TIMEOUT_S
            )
        except Unavailable:
            return  # it is still busy at the next looks, or needs none
        self._log.info("short of CPU time: one partition more", model=model, partitions=count)

    def _lead(self) -> Lead | None:
        partition = self._balance.only_led
        if partition is None or partition.model not in self._counts:
            return None
        num_workers = self._num_workers(partition)
        return Lead(partition, self._counts[partition.model], num_workers)
