"""One campaign for each partition of each known model, begun as models become known; the leads spread evenly."""

import asyncio
from collections.abc import Callable

from common.domain import Partition
from common.errors import Unavailable
from common.logs import Log
from common.streams import cards, schedulers
from common.streams.node import Node
from scheduler.balance import Balance
from scheduler.campaign import Campaign
from scheduler.partition_counts import PartitionCounts

POLL_INTERVAL_S = 1.0
_TIMEOUT_S = 2.0


class Campaigns:
    """Looks for models in the store, and is told of those that workers bring."""

    def __init__(
        self,
        node: Node,
        begin: Callable[[Partition], Campaign],
        *,
        scheduler_id: str,
        balance: Balance,
        counts: PartitionCounts,
        stopping: asyncio.Event,
        log: Log,
    ) -> None:
        """``counts`` says how many partitions each model has."""
        self._node = node
        self._begin = begin
        self._counts = counts
        self._stopping = stopping
        self._log = log
        self._announced: set[str] = set()
        self._news = asyncio.Event()
        self._scheduler_id = scheduler_id
        self._balance = balance
        self._campaigns: dict[Partition, Campaign] = {}

    def announce(self, model: str) -> None:
        """A worker serves this model: see to its partitions at once."""
        self._announced.add(model)
        self._news.set()

    async def run(self) -> None:
        """Campaign until the process stops."""
        async with asyncio.TaskGroup() as tasks:
            stop = tasks.create_task(self._stop_waiting())
            while not self._stopping.is_set():
                self._news.clear()
                found = await self._find()
                await self._spread(len(self._campaigns) + len(found))
                for partition in found:
                    campaign = self._campaigns[partition] = self._begin(partition)
                    tasks.create_task(campaign.run(), name=f"campaign {partition}")
                await self._pause()
            stop.cancel()
            self._leave_all()
            await self._say_goodbye()

    async def _find(self) -> list[Partition]:
        """Partitions that no campaign runs for yet."""
        found: list[Partition] = []
        try:
            models = {*await cards.read_index(self._node, bound_s=_TIMEOUT_S), *self._announced}
            for model in sorted(models):
                count = await self._counts.of(model)
                found += [Partition(model, index) for index in range(count)]
        except Unavailable:
            self._log.warning("models unknown", error=self._node.last_error)
        return [partition for partition in found if partition not in self._campaigns]

    async def _spread(self, num_partitions: int) -> None:
        """Give a partition away where this scheduler leads more than its share, or add one where that cannot help."""
        try:
            num_schedulers = await schedulers.sign_of_life(
                self._node, self._scheduler_id, bound_s=_TIMEOUT_S
            )
        except Unavailable:
            return  # who cannot tell how many there are leaves everything as it is
        surplus = self._balance.look(num_schedulers, num_partitions)
        if surplus is not None:
            self._log.info("more than a share is led", given_away=str(surplus))
            self._campaigns[surplus].leave()
        await self._counts.look(num_schedulers)

    async def _say_goodbye(self) -> None:
        try:
            await schedulers.say_goodbye(self._node, self._scheduler_id, bound_s=_TIMEOUT_S)
        except Unavailable:
            self._log.debug("no goodbye", error=self._node.last_error)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_INTERVAL_S):
                await self._news.wait()
        except TimeoutError:
            return

    async def _stop_waiting(self) -> None:
        await self._stopping.wait()
        self._news.set()
        self._leave_all()  # at once: a look that is under way may take a while

    def _leave_all(self) -> None:
        for campaign in self._campaigns.values():
            campaign.leave()
