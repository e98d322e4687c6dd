"""A worker inside the test's process: a real engine thread and real sessions, without ``__main__``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from common.clock import monotonic_s
from common.tracing import Tracing
from tests.support.engines import TEXTS
from tests.support.time_scale import scaled
from worker.engine.block_store import PagedRunner
from worker.engine.engine import Engine
from worker.engine.limits import EngineLimits
from worker.session.dialer import Dialer
from worker.session.engine_thread import EngineThread
from worker.session.identity import WorkerIdentity
from worker.session.live_requests import LiveRequests
from worker.session.session import Session, SessionParts
from worker.simulated.card import simulated_card
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import EOS_ID


@dataclass
class InProcessWorker:
    """The parts that tests look at."""

    engine: Engine
    thread: EngineThread
    dialer: Dialer
    running: asyncio.Task[None]
    spans: InMemorySpanExporter
    ends: list[str]

    async def left(self, within_s: float = 60) -> None:
        """Until the worker has left by itself."""
        async with asyncio.timeout(scaled(within_s)):
            await asyncio.shield(self.running)


@contextlib.asynccontextmanager
async def running_worker(
    addresses: Sequence[str],
    *,
    settings: SimulatedSettings | None = None,
    max_seqs: int = 8,
    worker_id: str = "worker-1",
    wrap: Callable[[PagedRunner], PagedRunner] = lambda runner: runner,
) -> AsyncIterator[InProcessWorker]:
    """A worker that dials ``addresses``."""
    settings = settings or SimulatedSettings(kv_blocks=256)
    spans, ends = InMemorySpanExporter(), list[str]()
    limits = EngineLimits(max_seqs, 64, 32, settings.context_tokens, frozenset({EOS_ID}))
    engine = Engine(wrap(SimulatedRunner(settings)), limits, TEXTS.text_of, monotonic_s)
    thread = EngineThread(engine, monotonic_s, on_crash=lambda: ends.append("crashed"))
    tracing = Tracing(Resource({}), SimpleSpanProcessor(spans))
    parts = SessionParts(
        identity=WorkerIdentity(
            worker_id, "0" * 16, simulated_card(settings), settings.kv_blocks,
            settings.block_size, max_seqs, 64,
        ),
        engine=thread,
        live=LiveRequests(tracing, model=settings.model, worker_id=worker_id),
        clock=monotonic_s,
        on_step=lambda report: None,
        on_welcome=lambda scheduler_id: None,
    )  # fmt: skip
    dialer = Dialer(
        addresses,
        lambda address: Session(parts, address),
        on_end=lambda ended: ends.append(ended.reason),
        random_01=lambda: 0.0,
    )
    thread.start()
    running = asyncio.create_task(dialer.run())
    try:
        yield InProcessWorker(engine, thread, dialer, running, spans, ends)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        thread.stop(scaled(60))
        tracing.shutdown(5)
