"""What is exported says the same as what the SDK would export."""

from itertools import product
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from common.domain import TraceContext
from common.span_encoding import encode
from common.tracing import Tracing, mark_failed

REMOTE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1,b=2")
# Of every type; 1, 1.0 and True are equal keys of a dictionary, and long texts are not kept.
ATTRIBUTES: list[dict[str, Any]] = [
    {},
    {"a": 1, "b": 1.0, "c": True, "d": "1", "e": ""},
    {"a": 1.0, "b": True, "c": 1, "d": 0, "e": False, "f": 0.0},
    {"a": -1, "b": 2**40, "c": 1e-9, "d": "ä\n" * 300},
    {"a": [1, 2], "b": ["x", "ß"], "c": [], "d": [0.5], "e": [True, False], "f": ("t",)},
]


def recording(processor: SimpleSpanProcessor) -> Tracing:
    return Tracing(Resource({"service.name": "s", "n": 1, "many": ["x", "y"]}), processor)


def test_all_that_a_span_can_hold_is_sent_as_the_sdk_sends_it():
    """Attributes of every type, events, links, parents here and elsewhere, states, failures; begun, and recorded afterwards."""
    kept = InMemorySpanExporter()
    tracing = recording(SimpleSpanProcessor(kept))
    with tracing.span("root"):
        pass
    for attributes, others, kind in product(ATTRIBUTES, ATTRIBUTES, SpanKind):
        span = tracing.begin(
            "begun", parent=REMOTE, kind=kind, links=[REMOTE], attributes=attributes
        )
        span.add_event("moment", others)
        span.set_status(Status(StatusCode.OK))
        mark_failed(span, ValueError("x"))
        span.end()
        tracing.record_span(
            "over",
            start_s=1.0,
            end_s=2.5,
            parent=REMOTE,
            links=[REMOTE],
            kind=kind,
            attributes=others,
        )
    spans = kept.get_finished_spans()
    assert len(spans) == 1 + 2 * len(ATTRIBUTES) ** 2 * len(SpanKind)
    assert encode(spans) == encode_spans(spans)


def test_what_was_dropped_is_counted():
    """A span that had more than it may hold says how much is missing."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(
        span_limits=SpanLimits(max_events=2, max_span_attributes=1), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(kept))
    span = provider.get_tracer("x", "1").start_span("full", attributes={"a": 1, "b": 2})
    for _ in range(5):
        span.add_event("moment")
    span.end()
    spans = kept.get_finished_spans()
    (sent,) = encode(spans).resource_spans[0].scope_spans[0].spans
    assert (sent.dropped_events_count, sent.dropped_attributes_count) == (3, 1)
    assert encode(spans) == encode_spans(spans)


def test_a_span_recorded_afterwards_is_like_one_that_was_begun():
    """Same place in the trace, same flags and state, same scope and resource; its id is its own."""
    kept = InMemorySpanExporter()
    tracing = recording(SimpleSpanProcessor(kept))
    options: dict[str, Any] = {"parent": REMOTE, "links": [REMOTE], "kind": SpanKind.CONSUMER}
    tracing.begin("x", **options, attributes={"a": 1}).end()
    context = tracing.record_span("x", start_s=1.0, end_s=2.0, **options, attributes={"a": 1})
    begun, recorded = kept.get_finished_spans()
    one, other = (encode([span]).resource_spans[0] for span in (begun, recorded))
    assert other.scope_spans[0].spans[0].span_id.hex() == context.traceparent[36:52]
    assert context.tracestate == REMOTE.tracestate
    for message in (one, other):
        span = message.scope_spans[0].spans[0]
        for field in ("span_id", "start_time_unix_nano", "end_time_unix_nano"):
            span.ClearField(field)
    assert one == other
