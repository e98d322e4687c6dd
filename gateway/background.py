"""Work that outlives the call that asked for it, with an owner: leaving a request, undoing an admission."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from common.logs import Log


class Background:
    """Tasks of one group; a failing one is logged and harms no other."""

    def __init__(self, tasks: asyncio.TaskGroup, log: Log) -> None:
        """``tasks`` is the parent."""
        self._group = tasks
        self._log = log
        self._running: set[asyncio.Task[None]] = set()

    def start(
        self, work: Coroutine[Any, Any, object], name: str, *, within_s: float | None
    ) -> asyncio.Task[None]:
        """Run ``work``, for at most ``within_s`` (None: until somebody cancels the task)."""
        task = self._group.create_task(self._contain(work, name, within_s), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # A task that is cancelled before it began has not touched its work.
        task.add_done_callback(lambda _: work.close())
        return task

    async def settle(self, within_s: float) -> None:
        """Wait for what is under way, then end the rest."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)
        for task in [*self._running]:
            task.cancel()

    async def _contain(
        self, work: Coroutine[Any, Any, object], name: str, within_s: float | None
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                await work
        except Exception as error:  # noqa: BLE001 - contained: one duty must not end the process
            self._log.error("background work failed", work=name, exc_info=error)


async def until_found(look: Callable[[], Awaitable[bool]]) -> bool:
    """Whether ``look`` finds what an earlier call of unknown outcome was to write, now or soon.

    That call may still lie in the buffer of a stalled node, behind this one on another connection.
    """
    for _ in range(3):
        if await look():
            return True
        await asyncio.sleep(1.0)
    return False
