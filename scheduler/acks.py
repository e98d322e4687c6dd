"""Acks inbox entries of requests that have ended, many in one round trip."""

import asyncio

from common.domain import Partition, Priority
from common.errors import Unavailable
from common.streams import inbox
from common.streams.node import Node
from scheduler.lease import HeldLease


class Acks:
    """Entries to ack; ``run`` acks them."""

    def __init__(self, node: Node, partition: Partition, lease: HeldLease) -> None:
        """None yet."""
        self._node = node
        self._partition = partition
        self._lease = lease
        self._entries: list[tuple[Priority, str]] = []
        self._wanted = asyncio.Event()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be acked or being acked."""
        return not (self._entries or self._is_writing)

    def add(self, priority: Priority, entry_id: str) -> None:
        """Its terminal record is written, or it never had a record."""
        self._entries.append((priority, entry_id))
        self._wanted.set()

    async def run(self) -> None:
        """Ack until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            entries, self._entries = self._entries, []
            self._is_writing = True
            await self._ack(entries)
            self._is_writing = False

    async def _ack(self, entries: list[tuple[Priority, str]]) -> None:
        while entries:
            await self._lease.until_held()
            try:
                await inbox.ack(
                    self._node, self._partition, entries, bound_s=self._lease.remaining_s
                )
            except Unavailable:
                continue
            return
