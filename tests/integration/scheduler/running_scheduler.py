"""A scheduler inside the test's process: the real parts, its own connections, and an abrupt death on request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource

from common.logs import get_log
from common.metrics import Metrics
from common.readiness import Readiness
from common.ready_file import ReadyFile
from common.server import Runtime
from common.tracing import Tracing
from scheduler.serve import serve
from scheduler.settings import SchedulerSettings
from tests.support.time_scale import scaled


class _Announced(ReadyFile):
    def __init__(self) -> None:
        super().__init__(None)
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def write(self, service, endpoints) -> None:
        self.address.set_result(endpoints["grpc"])


@dataclass
class RunningScheduler:
    """Where it serves, and how to end it."""

    address: str
    task: asyncio.Task[None]
    stopping: asyncio.Event
    metrics: Metrics

    async def die(self) -> None:
        """As good as kill -9: nothing is released, nothing flushed."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def stop(self) -> None:
        """A clean stop."""
        self.stopping.set()
        async with asyncio.timeout(scaled(60)):
            await self.task

    async def metric_becomes(self, name: str, value: float, within_s: float = 60) -> None:
        """Wait until a metric has a value: it moves when a grace has passed, which is no event here."""
        async with asyncio.timeout(scaled(within_s)):
            while self.metric(name) != value:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def metric_reaches(self, name: str, value: float, within_s: float) -> None:
        """Wait until a metric has at least a value."""
        async with asyncio.timeout(within_s):
            while self.metric(name) < value:  # noqa: ASYNC110 - no event here
                await asyncio.sleep(0.05)

    def metric(self, name: str) -> float:
        lines = self.metrics.scrape()[0].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@contextlib.asynccontextmanager
async def scheduling(
    redis_url: str, instance: str = "s1", tracing: Tracing | None = None, **settings
) -> AsyncIterator[RunningScheduler]:
    """A scheduler that serves workers; one that waits for the processor for a while counts as lost no sooner than in service."""
    values = {"reconnect_grace_s": 0.3} | settings
    announced, stopping = _Announced(), asyncio.Event()
    metrics = Metrics()
    runtime = Runtime(
        "scheduler",
        instance,
        get_log("scheduler"),
        tracing or Tracing(Resource({})),
        metrics,
        Readiness(),
        stopping,
        "",
        announced,
        lambda name, pages: None,
    )
    config = SchedulerSettings(redis_url=redis_url, grpc_port=0, **values)
    task = asyncio.create_task(serve(config, runtime))
    try:
        async with asyncio.timeout(scaled(60)):
            await asyncio.wait({task, announced.address}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield RunningScheduler(announced.address.result(), task, stopping, metrics)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        metrics.shutdown(1)
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()
