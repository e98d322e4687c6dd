"""One campaign for each partition of each known model, begun as models become known."""

import asyncio
from collections.abc import Callable

from common.domain import Partition
from common.errors import Unavailable
from common.logs import Log
from common.streams import cards
from common.streams.node import Node
from scheduler.campaign import Campaign

POLL_INTERVAL_S = 1.0
_TIMEOUT_S = 2.0


class Campaigns:
    """Looks for models in the store, and is told of those that workers bring."""

    def __init__(
        self,
        node: Node,
        begin: Callable[[Partition], Campaign],
        *,
        num_partitions: int,
        stopping: asyncio.Event,
        log: Log,
    ) -> None:
        """``num_partitions`` of each model, or more where the store says so."""
        self._node = node
        self._begin = begin
        self._num_partitions = num_partitions
        self._stopping = stopping
        self._log = log
        self._announced: set[str] = set()
        self._news = asyncio.Event()
        self._known: set[Partition] = set()

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
                for partition in await self._find():
                    self._known.add(partition)
                    tasks.create_task(self._begin(partition).run(), name=f"campaign {partition}")
                await self._pause()
            stop.cancel()

    async def _find(self) -> list[Partition]:
        """Partitions that no campaign runs for yet."""
        found: list[Partition] = []
        try:
            models = {*await cards.read_index(self._node, bound_s=_TIMEOUT_S), *self._announced}
            for model in sorted(models):
                await cards.raise_partition_count(
                    self._node, model, self._num_partitions, bound_s=_TIMEOUT_S
                )
                count = await cards.partition_count(self._node, model, bound_s=_TIMEOUT_S)
                found += [Partition(model, index) for index in range(count)]
        except Unavailable:
            self._log.warning("models unknown", error=self._node.last_error)
        return [partition for partition in found if partition not in self._known]

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_INTERVAL_S):
                await self._news.wait()
        except TimeoutError:
            return

    async def _stop_waiting(self) -> None:
        await self._stopping.wait()
        self._news.set()
