"""Reads a partition's inbox and posts what it finds; what is known already is the loop's business.

New entries come by a blocking read. After a connection error entries may be pending to us without our knowledge, and
a scheduler that was paused in its blocking read is still served: both are found by looking at what is pending.
"""

import asyncio
from collections.abc import Callable

from common.domain import Partition
from common.lengths import LENGTHS
from common.streams import inbox
from common.streams.node import Node
from scheduler.messages import EntriesRead

SWEEP_INTERVAL_S = LENGTHS.inbox_sweep_s


class Intake:
    """The inbox of a led partition."""

    def __init__(
        self,
        node: Node,
        partition: Partition,
        consumer: str,
        post: Callable[[EntriesRead], None],
    ) -> None:
        """Entries stay pending to ``consumer``."""
        self._node = node
        self._partition = partition
        self._consumer = consumer
        self._post = post

    async def run(self) -> None:
        """Read until cancelled, beginning with what former leaders left."""
        num_errors = self._node.num_errors
        await self._read_pending()
        while True:
            entries = await inbox.read_new(self._node, self._partition, self._consumer)
            if entries:
                self._post(EntriesRead(entries, are_new=True))
            if self._node.num_errors != num_errors:
                num_errors = self._node.num_errors
                await inbox.create_groups(self._node, self._partition)
                await self._read_pending()

    async def sweep(self) -> None:
        """Look for entries that other consumers were served, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            entries = await inbox.read_foreign(self._node, self._partition, self._consumer)
            if entries:
                self._post(EntriesRead(entries))

    async def _read_pending(self) -> None:
        entries = await inbox.read_pending(self._node, self._partition)
        if entries:
            self._post(EntriesRead(entries))
