"""Tasks that belong to a leadership and end with it, whatever they are at."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class OwnedTasks:
    """A task group's tasks that can be ended all at once; each may come and go before."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        """None yet."""
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        """Run ``work``; its failure is the group's."""
        task = self._group.create_task(work, name=name or None)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def end(self) -> None:
        """Cancel what still runs; the group waits for it."""
        for task in [*self._running]:
            task.cancel()
