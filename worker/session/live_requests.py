"""What a session has been assigned and has not told the end of, with a span for each sequence.

Each span is begun from the context that its own assignment carried, never from an ambient one: a step serves many requests
at once. It links to the span of the batch it was picked in, and it ends whatever happens.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry.trace import Span, Status, StatusCode

from common import telemetry_names as names
from common.clock import monotonic_s
from common.domain import TraceContext
from common.logs import for_request, get_log
from common.tracing import Tracing, context_of
from worker.engine.job import Job, Ticket
from worker.engine.report import Finish, PromptChunk, SequenceOutput, StepReport

_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a job came from: the trace it belongs to, and the batch it was picked in."""

    parent: TraceContext
    batch: TraceContext
    batch_id: str


@dataclass(slots=True)
class _Running:
    """One choice: its span, and where its two phases meet."""

    span: Span
    began_s: float
    first_token_s: float | None = None
    num_tokens: int = 0
    num_steps: int = 0
    num_chunks: int = 0


@dataclass(slots=True)
class _Live:
    job: Job
    choices: dict[int, _Running]


class LiveRequests:
    """The requests of one session, by ticket."""

    def __init__(
        self,
        tracing: Tracing,
        *,
        model: str,
        worker_id: str,
        on_prompt: Callable[[int], None] | None = None,
    ) -> None:
        """None yet. ``on_prompt`` is told the length of each prompt that is taken up."""
        self._tracing = tracing
        self._common: dict[str, str] = {
            names.GEN_AI_REQUEST_MODEL: model,
            names.GEN_AI_PROVIDER_NAME: names.PROVIDER_HEADRACE,
            names.HEADRACE_WORKER_ID: worker_id,
        }
        self._on_prompt = on_prompt
        self._live: dict[Ticket, _Live] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        """Requests without an end."""
        return len(self._live)

    def __contains__(self, ticket: Ticket) -> bool:
        """Whether that dispatch of a request has no end."""
        return ticket in self._live

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether every request ended within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    def begin(self, job: Job, origin: Origin) -> None:
        """A job was assigned; an earlier attempt of the same request is over with that."""
        for ticket in [t for t in self._live if t.request_id == job.ticket.request_id]:
            self._end(ticket, "replaced")
        now_s = monotonic_s()
        choices = {
            index: _Running(self._begin_span(job, index, origin), now_s) for index in job.choices
        }
        self._live[job.ticket] = _Live(job, choices)
        self._is_empty.clear()

    def observe(self, report: StepReport) -> None:
        """Take note of what a step brought."""
        for chunk in report.chunks:
            self._observe_chunk(chunk)
        for ticket in report.preempted:
            self._observe_wait(ticket)
        for output in report.outputs:
            live = self._live.get(output.ticket)
            if live is not None:
                self._observe_output(live, output)
        for returned in report.returned:
            self._end(returned.ticket, returned.reason)

    def abandon(self, reason: str) -> None:
        """The session is over: so is everything it was assigned."""
        for ticket in list(self._live):
            self._end(ticket, reason)

    def _begin_span(self, job: Job, index: int, origin: Origin) -> Span:
        generated = len(job.generated.get(index, ()))
        return self._tracing.begin(
            names.SpanName.GENERATE,
            parent=origin.parent,
            links=[origin.batch],
            attributes={
                **self._common,
                names.HEADRACE_REQUEST_ID: job.ticket.request_id,
                names.HEADRACE_EPOCH: job.ticket.epoch,
                names.HEADRACE_ATTEMPT: job.ticket.attempt,
                names.HEADRACE_BATCH_ID: origin.batch_id,
                names.HEADRACE_CHOICE: index,
                names.HEADRACE_TOKENS_RESUMED: generated,
                names.GEN_AI_REQUEST_MAX_TOKENS: job.stop.max_tokens,
                names.GEN_AI_USAGE_INPUT_TOKENS: len(job.prompt_token_ids),
            },
        )

    def _observe_output(self, live: _Live, output: SequenceOutput) -> None:
        if output.took_up_prompt and self._on_prompt is not None:
            self._on_prompt(len(live.job.prompt_token_ids))
        running = live.choices.get(output.index)
        if running is None:
            return
        if output.took_up_prompt:
            running.span.set_attribute(
                names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, output.cached_tokens
            )
        if output.token_ids:
            running.num_steps += 1
            running.num_tokens += len(output.token_ids)
            if running.first_token_s is None:
                running.first_token_s = monotonic_s()
                running.span.add_event(names.EventName.FIRST_TOKEN)
        if output.finish is not None:
            if output.finish.failure is not None:
                log = for_request(_log, output.ticket.request_id, context_of(running.span))
                log.error("sequence_failed", reason=output.finish.failure.reason)
            self._record_phases(live.job, output.index, running)
            _end_span(running, output.finish)
            del live.choices[output.index]
            if not live.choices:
                self._forget([output.ticket])

    def _observe_chunk(self, chunk: PromptChunk) -> None:
        """A moment for each part of a long prompt: what lay between two of them are steps for others."""
        live = self._live.get(chunk.ticket)
        running = None if live is None else live.choices.get(chunk.index)
        if running is not None:
            running.num_chunks += 1
            running.span.add_event(
                names.EventName.PREFILL_CHUNK, {names.HEADRACE_PREFILL_TOKENS: chunk.num_tokens}
            )

    def _observe_wait(self, ticket: Ticket) -> None:
        """It waits on this worker until there is memory for it."""
        live = self._live.get(ticket)
        for running in live.choices.values() if live is not None else ():
            running.span.add_event(
                names.EventName.PREEMPTED, {names.HEADRACE_OUTCOME: "made room on the worker"}
            )

    def _record_phases(self, job: Job, index: int, running: _Running) -> None:
        """Prefill and decode as spans of their own: two a choice, never one a token."""
        if not running.span.is_recording():
            return
        now_s, parent = monotonic_s(), context_of(running.span)
        known = len(job.prompt_token_ids) + len(job.generated.get(index, ()))
        first_s = running.first_token_s
        self._tracing.record_span(
            names.SpanName.PREFILL,
            start_s=running.began_s,
            end_s=now_s if first_s is None else first_s,
            parent=parent,
            attributes={
                names.HEADRACE_PREFILL_TOKENS: known,
                # The last one is told by the first token.
                names.HEADRACE_PREFILL_CHUNKS: running.num_chunks + (first_s is not None),
            },
        )
        if first_s is not None:
            self._tracing.record_span(
                names.SpanName.DECODE,
                start_s=first_s,
                end_s=now_s,
                parent=parent,
                attributes={
                    names.HEADRACE_DECODE_STEPS: running.num_steps,
                    names.GEN_AI_USAGE_OUTPUT_TOKENS: running.num_tokens,
                },
            )

    def _end(self, ticket: Ticket, reason: str) -> None:
        """End a request without a finish: returned, replaced or lost."""
        live = self._live.get(ticket)
        if live is None:
            return
        for index, running in live.choices.items():
            self._record_phases(live.job, index, running)
            span = running.span
            span.add_event(names.EventName.PREEMPTED, {names.HEADRACE_OUTCOME: reason})
            span.set_attribute(names.HEADRACE_OUTCOME, reason)
            span.set_attribute(names.GEN_AI_USAGE_OUTPUT_TOKENS, running.num_tokens)
            span.end()
        self._forget([ticket])

    def _forget(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            self._live.pop(ticket, None)
        if not self._live:
            self._is_empty.set()


def _end_span(running: _Running, finish: Finish) -> None:
    span = running.span
    span.set_attribute(names.GEN_AI_USAGE_OUTPUT_TOKENS, running.num_tokens)
    span.set_attribute(names.GEN_AI_RESPONSE_FINISH_REASONS, [str(finish.reason)])
    span.set_attribute(names.HEADRACE_FINISH_REASON, str(finish.reason))
    if finish.failure is not None:
        span.set_attribute(names.ERROR_TYPE, finish.failure.reason)
        span.set_status(Status(StatusCode.ERROR, finish.failure.reason))
    span.end()
