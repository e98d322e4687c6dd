"""Looks up a drain order when its worker connects and clears it when it leaves; `heartbeat` hears of new ones."""

import asyncio
from collections.abc import Callable

from common.domain import Partition
from common.streams import wake
from common.streams.node import Node
from scheduler.messages import DrainOrdered


class Drains:
    """Drain orders of a partition; ``run`` does what is asked for."""

    def __init__(
        self, node: Node, partition: Partition, post: Callable[[DrainOrdered], None]
    ) -> None:
        """``post`` hears of standing orders."""
        self._node = node
        self._partition = partition
        self._post = post
        self._wishes: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    def look(self, worker_id: str) -> None:
        """See whether there is an order for the worker."""
        self._wishes.put_nowait((worker_id, False))

    def clear(self, worker_id: str) -> None:
        """The worker has left."""
        self._wishes.put_nowait((worker_id, True))

    async def run(self) -> None:
        """Look and clear until cancelled."""
        while True:
            worker_id, is_done = await self._wishes.get()
            if is_done:
                await wake.clear_drain(self._node, self._partition, worker_id)
                continue
            order = await wake.read_drain(self._node, self._partition, worker_id)
            if order is not None:
                self._post(DrainOrdered(order))
