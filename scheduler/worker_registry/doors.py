"""Which partitions this process leads now, as workers' sessions find them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from common.domain import Partition
from common.wire.session import Hello
from scheduler.worker_need import Kind
from scheduler.worker_registry.events import SessionEvent
from scheduler.worker_registry.session import WorkerSession


@dataclass(frozen=True, slots=True, eq=False)
class Door:
    """The way into one led partition. ``num_workers`` and ``backlog`` tell how much it needs another worker.

    ``backlog`` counts what a worker of a kind may run. ``holder`` is the session of the worker that has an id.
    """

    partition: Partition
    post: Callable[[SessionEvent], None]
    num_workers: Callable[[], int]
    backlog: Callable[[Kind], int]
    holder: Callable[[str], WorkerSession | None]


class Doors:
    """Opened by leaderships, found by sessions."""

    def __init__(self) -> None:
        """None open."""
        self._doors: dict[Partition, Door] = {}
        self._promised: dict[str, Partition] = {}
        self._changed = asyncio.Event()

    def open(self, door: Door) -> None:
        """The partition is led here from now on."""
        self._doors[door.partition] = door
        self._changed.set()

    def shut(self, door: Door) -> None:
        """The partition is not led here any more."""
        if self._doors.get(door.partition) is door:
            del self._doors[door.partition]

    def promise(self, worker_id: str, partition: Partition) -> None:
        """A worker that is being sent away will come back for this partition."""
        self._promised[worker_id] = partition

    def door_for(self, hello: Hello) -> Door | None:
        """The partition that the worker was sent to, if it is led here, or the neediest one of its model."""
        promised = self._promised.pop(hello.worker_id, None)
        door = None if promised is None else self._doors.get(promised)
        return door or self.neediest(hello)

    def num_workers(self, partition: Partition) -> int:
        """Workers of a partition; none where it is not led here."""
        door = self._doors.get(partition)
        return 0 if door is None else door.num_workers()

    def neediest(self, hello: Hello) -> Door | None:
        """The partition led here with the longest backlog that the worker may run, for each worker; without any, with
        fewest workers."""
        doors = [door for door in self._doors.values() if door.partition.model == hello.model]
        kind = Kind(hello.fingerprint, hello.model_revision)
        return max(
            doors,
            key=lambda door: (door.backlog(kind) / (door.num_workers() + 1), -door.num_workers()),
            default=None,
        )

    async def wait_for(self, hello: Hello, timeout_s: float) -> Door | None:
        """``neediest``, waiting up to ``timeout_s`` until there is one."""
        try:
            async with asyncio.timeout(timeout_s):
                while (door := self.neediest(hello)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return door
        except TimeoutError:
            return None
