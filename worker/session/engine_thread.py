"""The engine's own thread, so that reading the scheduler's messages never waits for a computation.

    event loop ── commands ──▶ queue ──▶ engine thread: obey what is queued, step, tell
               ◀── reports ── sink ◀──┘

Idle, the thread waits for a command. Its state is read by others only through ``status``, a value replaced as a whole.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from common.domain import Clock, FinishReason
from common.logs import get_log
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.report import Credit, StepReport

Command = Callable[[Engine], None]
Sink = Callable[[StepReport], object]

_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine as others may see it. ``progress_s`` is when the last step ended, None while there is no work."""

    credit: Credit
    num_running: int
    num_waiting: int
    blocks_used: int
    progress_s: float | None
    draft_blocks_used: int = 0

    def step_age_s(self, now_s: float) -> float:
        """Age of the last step while there is work, else 0."""
        return 0.0 if self.progress_s is None else max(0.0, now_s - self.progress_s)


class EngineThread:
    """Runs an engine; every method but ``run`` only leaves a command, from any thread."""

    def __init__(self, engine: Engine, clock: Clock, on_crash: Callable[[], None]) -> None:
        """``on_crash`` is called in the thread when the engine itself breaks, which is a bug of ours."""
        self._engine = engine
        self._clock = clock
        self._on_crash = on_crash
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._sink: Sink = _to_nobody
        self._is_stopping = False
        self._thread = threading.Thread(target=self.run, name="engine", daemon=True)
        self.status = self._look(progress_s=None)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End behind the current step; a step that does not end in time is left to die with the process."""
        self._is_stopping = True
        self._commands.put(_do_nothing)  # wakes it
        self._thread.join(timeout_s)

    async def begin_session(self, sink: Sink) -> None:
        """Forget every sequence; from now on reports go to ``sink``, called in the engine's thread."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def begin(engine: Engine) -> None:
            engine.reset()
            self._sink = sink
            # Before anybody can ask: the new session begins with what it tells.
            self.status = self._look(progress_s=None)
            loop.call_soon_threadsafe(done.set)

        self._commands.put(begin)
        # Bounded by the step under way, which the watchdog bounds.
        await done.wait()

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._commands.put(lambda engine: engine.submit(job))

    def refuse(self, ticket: Ticket, reason: str) -> None:
        """Send a job back unseen."""
        self._commands.put(lambda engine: engine.refuse(ticket, reason))

    def cancel(self, request_id: str, attempt: int, reason: FinishReason) -> None:
        """End a request."""
        self._commands.put(lambda engine: engine.cancel(request_id, attempt, reason))

    def give_back(self, request_id: str, attempt: int, reason: str) -> None:
        """Return a request to the queue."""
        self._commands.put(lambda engine: engine.give_back(request_id, attempt, reason))

    def give_back_all(self, reason: str) -> None:
        """Return everything to the queue."""
        self._commands.put(lambda engine: engine.give_back_all(reason))

    def tell_cache(self) -> None:
        """Let the next report tell all that the prefix cache holds."""
        self._commands.put(lambda engine: engine.cache.tell_everything())

    def run(self) -> None:
        """The thread's loop: obey, step, tell."""
        try:
            while not self._is_stopping:
                self._obey()
                if self._engine.has_work and not self._is_stopping:
                    self._tell(self._engine.step())
        except BaseException:
            _log.exception("engine_crashed")
            self._on_crash()
            raise

    def _obey(self) -> None:
        if not self._engine.has_work:
            self.status = self._look(progress_s=None)
            self._commands.get()(self._engine)
        while not self._commands.empty():
            self._commands.get()(self._engine)
        if self._engine.has_work and self.status.progress_s is None:
            self.status = self._look(progress_s=self._clock())

    def _tell(self, report: StepReport) -> None:
        self.status = self._look(progress_s=self._clock())
        if not self._is_stopping:  # the event loop may be gone
            self._sink(report)

    def _look(self, *, progress_s: float | None) -> EngineStatus:
        engine, draft = self._engine, self._engine.speculation.pool
        return EngineStatus(
            credit=engine.credit,
            num_running=engine.num_running,
            num_waiting=engine.num_waiting,
            blocks_used=engine.pool.num_used,
            progress_s=progress_s,
            draft_blocks_used=0 if draft is None else draft.num_used,
        )


def _to_nobody(_: StepReport) -> None:
    """Where reports go before the first session: there is no work then."""


def _do_nothing(_: Engine) -> None:
    """A command that only wakes."""
