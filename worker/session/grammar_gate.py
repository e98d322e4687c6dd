"""Between a session and the engine: jobs that follow a grammar wait here until it is compiled.

assign ──▶ gate ──▶ engine          without a grammar, or with one that is known: at once
             └─ compile ─▶ engine   else beside the step loop; whatever else is ordered meanwhile holds here too
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol

from common.domain import FinishReason, OutputConstraint
from common.grammars import BadGrammar
from common.records import Failure
from worker.engine.constraint import Grammar
from worker.engine.job import Job
from worker.session.engine_thread import EngineThread

BAD_CONSTRAINT = "BAD_CONSTRAINT"
CONSTRAINT_TIMEOUT = "CONSTRAINT_TIMEOUT"
COMPILE_TIMEOUT_S = 20.0
"""Each grammar is bounded to seconds; more is a queue of them."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Compiler(Protocol):
    """Where compiled grammars come from (`worker.grammar.compiler`)."""

    def compiled(self, constraint: OutputConstraint) -> Future[Grammar]:
        """The compiled grammar, now or soon; BadGrammar where there is none."""
        ...


class GrammarGate:
    """The jobs of one session that wait for their grammars. Lives in the event loop."""

    def __init__(self, engine: EngineThread, compiler: Compiler | None) -> None:
        """Without a compiler every grammar is refused."""
        self._engine = engine
        self._compiler = compiler
        self._waiting: dict[str, Job] = {}

    def submit(self, job: Job, spawn: Spawn) -> None:
        """Pass a job on, now or when its grammar is there."""
        self._waiting.pop(job.ticket.request_id, None)
        if job.constraint is None:
            self._engine.submit(job)
            return
        if self._compiler is None:
            self._fail(job, BAD_CONSTRAINT, "this worker has no library for grammars")
            return
        self._waiting[job.ticket.request_id] = job
        spawn(self._compile(job, self._compiler))

    def cancel(self, request_id: str, attempt: int, reason: FinishReason) -> None:
        """End a request, wherever it is."""
        job = self._take(request_id, attempt)
        if job is not None:
            self._engine.submit(job)  # it has not begun: the engine only tells its end
        self._engine.cancel(request_id, attempt, reason)

    def give_back(self, request_id: str, attempt: int, reason: str) -> None:
        """Return a request to the queue, wherever it is."""
        job = self._take(request_id, attempt)
        if job is not None:
            self._engine.refuse(job.ticket, reason)
            return
        self._engine.give_back(request_id, attempt, reason)

    def give_back_all(self, reason: str) -> None:
        """Return everything to the queue."""
        for job in list(self._waiting.values()):
            self.give_back(job.ticket.request_id, job.ticket.attempt, reason)
        self._engine.give_back_all(reason)

    async def _compile(self, job: Job, compiler: Compiler) -> None:
        assert job.constraint is not None
        future = asyncio.wrap_future(compiler.compiled(job.constraint))
        try:
            # Others may wait for the same grammar.
            grammar = await asyncio.wait_for(asyncio.shield(future), COMPILE_TIMEOUT_S)
        except BadGrammar as error:
            if self._is_waiting(job):
                self._fail(job, BAD_CONSTRAINT, f"the constraint cannot be compiled: {error}")
        except TimeoutError:
            if self._is_waiting(job):
                self._fail(job, CONSTRAINT_TIMEOUT, "compiling the constraint took too long")
        else:
            if self._is_waiting(job):
                del self._waiting[job.ticket.request_id]
                self._engine.submit(replace(job, grammar=grammar))

    def _fail(self, job: Job, reason: str, message: str) -> None:
        self._waiting.pop(job.ticket.request_id, None)
        self._engine.submit(replace(job, failure=Failure("INTERNAL", message, reason)))

    def _is_waiting(self, job: Job) -> bool:
        return self._waiting.get(job.ticket.request_id) is job

    def _take(self, request_id: str, attempt: int) -> Job | None:
        job = self._waiting.get(request_id)
        if job is None or job.ticket.attempt != attempt:
            return None
        return self._waiting.pop(request_id)
