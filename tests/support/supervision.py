"""Restarts a service process of a test whenever it ends, and counts how often that was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.support.processes import ServiceProcess


class Supervised:
    """One process that is kept alive."""

    def __init__(self, process: ServiceProcess) -> None:
        self._process = process
        self.num_deaths = 0

    async def run(self) -> None:
        """Wait for its end and start it again, until cancelled."""
        while True:
            while self._process.process.poll() is None:  # noqa: ASYNC110 - another process: no event
                await asyncio.sleep(0.02)
            self.num_deaths += 1
            self._process.start()


@contextlib.asynccontextmanager
async def supervised(*processes: ServiceProcess) -> AsyncIterator[list[Supervised]]:
    """The processes are kept alive in the block."""
    keepers = [Supervised(process) for process in processes]
    tasks = [asyncio.create_task(keeper.run()) for keeper in keepers]
    try:
        yield keepers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
