"""Traces: spans from explicit contexts, exported by OTLP when a receiver is configured.

A request passes through a queue and through steps that serve many requests at once. An ambient "current
span" would mix them up, so every span here is begun from a ``TraceContext`` that the caller holds, and
becomes current only when asked for. Without a receiver nothing is recorded, but ids still exist and
travel, so that logs and answers can name a trace.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from common.domain import TraceContext
from common.errors import HeadraceError
from common.root_sampler import RootSampler
from common.telemetry_names import ERROR_TYPE

__all__ = [
    "NO_TRACE",
    "SpanKind",
    "Tracing",
    "context_of",
    "extract_context",
    "inject_context",
    "mark_failed",
    "trace_id_of",
]

Attribute = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]
Attributes = Mapping[str, Attribute]

NO_TRACE = TraceContext()

_SCOPE = InstrumentationScope("headrace", "")
_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT, _TRACESTATE = "traceparent", "tracestate"
_PLAIN = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
# W3C asks to carry at least 512 characters; more would only feed our stream entries.
_MAX_TRACESTATE_CHARS = 512
_SERVER_FAULTS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


class Tracing:
    """Begins and records the spans of one process."""

    def __init__(
        self,
        resource: Resource,
        processor: SpanProcessor | None = None,
        *,
        sample_ratio: float = 1.0,
    ) -> None:
        """Without ``processor`` nothing is recorded."""
        self._ids = RandomIdGenerator()
        self._resource = resource
        self._processor = processor
        self._provider: TracerProvider | None = None
        if processor is not None:
            self._provider = TracerProvider(
                sampler=ParentBased(RootSampler(sample_ratio)),
                resource=resource,
                shutdown_on_exit=False,
            )
            self._provider.add_span_processor(processor)
            self._tracer = self._provider.get_tracer(_SCOPE.name)

    @property
    def is_recording(self) -> bool:
        """Whether anybody gets to see spans: where nobody does, what they would say need not be gathered."""
        return self._provider is not None

    def begin(
        self,
        name: str,
        *,
        parent: TraceContext = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Iterable[TraceContext] = (),
        attributes: Attributes | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """A span that the caller ends; prefer ``span`` where a block can hold it.

        Without a usable ``parent`` a new trace begins. A parent that is not sampled stays so, and what only links to
        traces is recorded if one of them is.
        """
        outer = _span_context(parent)
        if self._provider is None:
            return NonRecordingSpan(outer or self._new_context())
        context = Context()
        if outer is not None:
            context = trace.set_span_in_context(NonRecordingSpan(outer), context)
        return self._tracer.start_span(
            name,
            context=context,
            kind=kind,
            links=_links(links),
            attributes=attributes,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: TraceContext = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Iterable[TraceContext] = (),
        attributes: Attributes | None = None,
        current: bool = False,
    ) -> Iterator[Span]:
        """A span around a block; it ends, and names the error, whatever happens.

        ``current`` lets log lines inside the block find it. Not for async generators: they may be
        closed in another context than the one they were begun in.
        """
        span = self.begin(name, parent=parent, kind=kind, links=links, attributes=attributes)
        try:
            if current:
                with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                    yield span
            else:
                yield span
        except BaseException as error:
            mark_failed(span, error)
            raise
        finally:
            span.end()

    def record_span(
        self,
        name: str,
        *,
        start_s: float,
        end_s: float,
        parent: TraceContext = NO_TRACE,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Iterable[TraceContext] = (),
        attributes: Attributes | None = None,
    ) -> TraceContext:
        """Record a span that is already over, between two readings of this process's monotonic clock.

        Its length is exactly what was measured; only its place in wall-clock time is derived.
        """
        if self._processor is None:
            return context_of(self.begin(name, parent=parent))
        offset_ns = time.time_ns() - time.monotonic_ns()
        start_ns = offset_ns + round(start_s * 1e9)
        outer, end_ns = _span_context(parent), start_ns + max(0, round((end_s - start_s) * 1e9))
        if outer is None or not outer.trace_flags.sampled:
            span = self.begin(
                name,
                parent=parent,
                kind=kind,
                links=links,
                attributes=attributes,
                start_ns=start_ns,
            )
            span.end(end_ns)
            return context_of(span)
        # It is recorded, because its parent is, and over: what the SDK does for a span that goes on costs five times as much.
        context = SpanContext(
            outer.trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=outer.trace_flags,
            trace_state=outer.trace_state,
        )
        self._processor.on_end(
            ReadableSpan(
                name,
                context,
                outer,
                self._resource,
                attributes,
                links=_links(links),
                kind=kind,
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=_SCOPE,
            )
        )
        return _context_of(context)

    def shutdown(self, timeout_s: float) -> None:
        """Send what is recorded, within ``timeout_s``; blocks. Nothing is recorded after."""
        if self._provider is None:
            return
        # The SDK waits up to half a minute for a receiver that does not answer, and takes no bound.
        thread = threading.Thread(target=self._provider.shutdown, name="trace-flush", daemon=True)
        thread.start()
        thread.join(timeout_s)

    def _new_context(self) -> SpanContext:
        return SpanContext(
            self._ids.generate_trace_id(),
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.DEFAULT),
        )


def mark_failed(span: Span, error: BaseException) -> None:
    """Say on a span why it failed, without the message of errors that may quote a prompt.

    A call that was refused for what it asked is no failure of the server, as the conventions for RPC see it.
    """
    label = error.reason if isinstance(error, HeadraceError) else type(error).__name__
    span.set_attribute(ERROR_TYPE, label)
    is_refusal = isinstance(error, HeadraceError) and error.code not in _SERVER_FAULTS
    if not (is_refusal and getattr(span, "kind", None) is SpanKind.SERVER):
        span.set_status(Status(StatusCode.ERROR, label))


def context_of(span: Span) -> TraceContext:
    """What to send along so that others continue this span."""
    context = span.get_span_context()
    return _context_of(context) if context.is_valid else NO_TRACE


def _context_of(context: SpanContext) -> TraceContext:
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state
    return TraceContext(traceparent, state.to_header() if state else "")


def trace_id_of(context: TraceContext) -> str:
    """The trace id as 32 hex digits, empty where there is none."""
    parts = context.traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""


def extract_context(metadata: Iterable[tuple[str, str | bytes]] | None) -> TraceContext:
    """The caller's context from gRPC metadata or headers; none if it is absent or malformed."""
    carrier = {
        key.lower(): value
        for key, value in metadata or ()
        if isinstance(value, str) and key.lower() in {_TRACEPARENT, _TRACESTATE}
    }
    context = TraceContext(
        carrier.get(_TRACEPARENT, ""),
        carrier.get(_TRACESTATE, "")[:_MAX_TRACESTATE_CHARS],
    )
    return context if _span_context(context) is not None else NO_TRACE


def inject_context(context: TraceContext) -> list[tuple[str, str]]:
    """gRPC metadata that carries ``context``."""
    pairs = [(_TRACEPARENT, context.traceparent), (_TRACESTATE, context.tracestate)]
    return [(key, value) for key, value in pairs if value]


@lru_cache(maxsize=4096)
def _span_context(context: TraceContext) -> SpanContext | None:
    """Remembered, because several spans of a request have the same parent; and read at once where nothing is special."""
    if not context.traceparent:
        return None
    plain = _PLAIN.fullmatch(context.traceparent)
    if plain is not None and not context.tracestate:
        trace_id, span_id, flags = (int(part, 16) for part in plain.groups())
        found = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        return found if found.is_valid else None
    carrier = {_TRACEPARENT: context.traceparent, _TRACESTATE: context.tracestate}
    extracted = _PROPAGATOR.extract(carrier, Context())
    found = trace.get_current_span(extracted).get_span_context()
    return found if found.is_valid else None


def _links(contexts: Iterable[TraceContext]) -> list[Link]:
    found = [_span_context(context) for context in contexts]
    links = [Link(context) for context in found if context is not None]
    # A link into a trace that is not recorded leads nowhere; but if there are no others, the sampler is to see them.
    return [link for link in links if link.context.trace_flags.sampled] or links
