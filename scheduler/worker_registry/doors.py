"""Which partitions this process leads now, as workers' sessions find them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from common.domain import Partition
from scheduler.worker_registry.events import SessionEvent
from scheduler.worker_registry.session import WorkerSession


@dataclass(frozen=True, slots=True, eq=False)
class Door:
    """The way into one led partition. ``num_workers`` and ``backlog`` tell how much it needs another worker.

    ``holder`` is the session of the worker that has an id.
    """

    partition: Partition
    post: Callable[[SessionEvent], None]
    num_workers: Callable[[], int]
    backlog: Callable[[], int]
    holder: Callable[[str], WorkerSession | None]


class Doors:
    """Opened by leaderships, found by sessions."""

    def __init__(self) -> None:
        """None open."""
        self._doors: dict[Partition, Door] = {}
        self._changed = asyncio.Event()

    def open(self, door: Door) -> None:
        """The partition is led here from now on."""
        self._doors[door.partition] = door
        self._changed.set()

    def shut(self, door: Door) -> None:
        """The partition is not led here any more."""
        if self._doors.get(door.partition) is door:
            del self._doors[door.partition]

    def neediest(self, model: str) -> Door | None:
        """The model's partition led here that has fewest workers, and of those the longest backlog."""
        doors = [door for door in self._doors.values() if door.partition.model == model]
        return min(doors, key=lambda door: (door.num_workers(), -door.backlog()), default=None)

    async def wait_for(self, model: str, timeout_s: float) -> Door | None:
        """``neediest``, waiting up to ``timeout_s`` until there is one."""
        try:
            async with asyncio.timeout(timeout_s):
                while (door := self.neediest(model)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return door
        except TimeoutError:
            return None
