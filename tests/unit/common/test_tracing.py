"""Tracing: contexts survive the trip, spans end whatever happens, and nobody's ambient span leaks in."""

import asyncio
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from common.domain import TraceContext
from common.errors import QueueFull, Unavailable
from common.service_settings import TelemetrySettings
from common.telemetry import build_metrics, build_tracing
from common.tracing import (
    NO_TRACE,
    SpanKind,
    Tracing,
    context_of,
    extract_context,
    inject_context,
    trace_id_of,
)
from tests.support.otlp_receiver import running_otlp_receiver

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = TraceContext(f"00-{TRACE}-b7ad6b7169203331-01", "vendor=1")
UNSAMPLED = TraceContext(f"00-{TRACE}-b7ad6b7169203331-00")


class Recording:
    """Tracing whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(Resource({}), SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def recording() -> Recording:
    return Recording()


def test_a_span_continues_the_parent_it_is_given(recording):
    """Same trace, parent's span id, tracestate carried on."""
    with recording.tracing.span("x", parent=SAMPLED) as span:
        carried = context_of(span)
    (ended,) = recording.spans
    assert trace_id_of(carried) == TRACE
    assert f"{ended.parent.span_id:016x}" == "b7ad6b7169203331"
    assert carried.traceparent.endswith("-01")
    assert carried.tracestate == "vendor=1"


def test_the_ambient_span_is_never_a_parent(recording):
    """A step that serves many requests must not join their traces."""
    with (
        recording.tracing.span("outer", parent=SAMPLED, current=True),
        recording.tracing.span("inner") as inner,
    ):
        assert trace_id_of(context_of(inner)) != TRACE
    inner_ended, _ = recording.spans
    assert inner_ended.parent is None


def test_a_span_becomes_current_only_when_asked(recording):
    """Log lines find it then, and only then."""
    with recording.tracing.span("quiet"):
        assert trace.get_current_span() is trace.INVALID_SPAN
    with recording.tracing.span("current", current=True) as span:
        assert trace.get_current_span() is span
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_an_unsampled_parent_stays_unsampled(recording):
    """Whoever began the trace decided; the decision travels on."""
    with recording.tracing.span("x", parent=UNSAMPLED) as span:
        assert context_of(span).traceparent.endswith("-00")
        assert trace_id_of(context_of(span)) == TRACE
    assert recording.spans == []


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "garbage",
        f"00-{TRACE}-b7ad6b7169203331",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01-extra",
        "00-" + "é" * 32 + "-b7ad6b7169203331-01",
    ],
)
def test_a_malformed_context_begins_a_new_trace(recording, traceparent):
    """Never an error: a client's broken header must not cost it the answer."""
    assert extract_context([("traceparent", traceparent)]) == NO_TRACE
    with recording.tracing.span("x", parent=TraceContext(traceparent)) as span:
        assert len(trace_id_of(context_of(span))) == 32
    assert recording.spans[0].parent is None


def test_a_context_survives_metadata():
    """Out and in again gives the same; other metadata does not disturb."""
    metadata: list[tuple[str, str | bytes]] = [("x-request-id", "1"), ("data-bin", b"\x00")]
    metadata += inject_context(SAMPLED)
    assert extract_context(metadata) == SAMPLED
    assert extract_context([(key.title(), value) for key, value in metadata]) == SAMPLED
    assert extract_context(None) == NO_TRACE
    assert inject_context(NO_TRACE) == []


def test_a_long_or_broken_tracestate_costs_no_trace():
    """Only its own content is lost."""
    for state in ("x" * 5000, "no equals sign", ",,,", "a=1," * 40):
        found = extract_context([("traceparent", SAMPLED.traceparent), ("tracestate", state)])
        assert trace_id_of(found) == TRACE
        assert len(found.tracestate) <= 512


def test_links_join_a_batch_to_its_requests(recording):
    """Recorded traces become links; what is not recorded has nothing to link to."""
    recording.tracing.begin("batch", links=[SAMPLED, NO_TRACE, UNSAMPLED]).end()
    (batch,) = recording.spans
    assert [link.context.trace_id for link in batch.links] == [int(TRACE, 16)]


@pytest.mark.parametrize(
    ("error", "is_failure"),
    [
        (QueueFull("full", reason="QUEUE_FULL", retry_after_s=1), False),
        (Unavailable("away", reason="REDIS"), True),
        (ValueError("bug"), True),
    ],
)
def test_a_refused_call_is_no_failure_of_the_server(recording, error, is_failure):
    """Its span names the reason either way; only a server's own faults count as errors."""
    with pytest.raises(type(error)), recording.tracing.span("x", kind=SpanKind.SERVER):
        raise error
    (span,) = recording.spans
    assert span.attributes["error.type"]
    assert (span.status.status_code is StatusCode.ERROR) == is_failure


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_batch_is_recorded_with_its_members(ratio):
    """Whatever share of new traces is drawn: a batch is recorded if one of its requests is, and only then."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(Resource({}), SimpleSpanProcessor(exporter), sample_ratio=ratio)
    tracing.begin("with", links=[UNSAMPLED, SAMPLED]).end()
    tracing.begin("without", links=[UNSAMPLED]).end()
    assert [span.name for span in exporter.get_finished_spans()] == ["with"]


def test_a_failing_block_ends_its_span_and_names_the_error(recording):
    """Our errors by their reason, others by their type, the message in neither."""
    for error in (
        QueueFull("secret", reason="QUEUE_FULL", retry_after_s=1),
        ValueError("secret"),
        asyncio.CancelledError(),
    ):
        with pytest.raises(type(error)), recording.tracing.span("x"):
            raise error
    labels = [span.attributes["error.type"] for span in recording.spans]
    assert labels == ["QUEUE_FULL", "ValueError", "CancelledError"]
    assert all(not span.status.is_ok for span in recording.spans)
    assert "secret" not in str([span.to_json() for span in recording.spans])


def test_a_cancelled_task_ends_its_span(recording):
    """The commonest end of a stream: the client hangs up."""

    async def scenario() -> None:
        inside = asyncio.Event()

        async def stream() -> None:
            with recording.tracing.span("stream", current=True):
                inside.set()
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(stream())
            await inside.wait()
            task.cancel()

    asyncio.run(scenario())
    assert [span.name for span in recording.spans] == ["stream"]


def test_a_span_measured_elsewhere_has_exactly_the_measured_length(recording):
    """Queue time in the trace equals queue time in the metric."""
    end_s = time.monotonic()
    start_s = end_s - 1.234567
    before_ns = time.time_ns()
    context = recording.tracing.record_span(
        "headrace.queue", parent=SAMPLED, start_s=start_s, end_s=end_s, attributes={"a": 1}
    )
    (span,) = recording.spans
    assert span.end_time - span.start_time == round((end_s - start_s) * 1e9)
    assert abs(span.end_time - before_ns) < 60e9
    assert trace_id_of(context) == TRACE


def test_without_a_receiver_ids_still_exist_and_travel():
    """Answers and logs name a trace, and a given context passes through unaltered."""
    tracing = build_tracing("gateway", TelemetrySettings())
    with tracing.span("x") as span:
        assert not span.is_recording()
        assert len(trace_id_of(context_of(span))) == 32
    with tracing.span("x", parent=SAMPLED) as span:
        assert context_of(span) == SAMPLED
    tracing.shutdown(1)


def test_spans_and_metrics_reach_a_receiver_at_shutdown():
    """What was recorded just before the end is sent."""
    with running_otlp_receiver() as receiver:
        settings = TelemetrySettings(otlp_endpoint=receiver.endpoint, service_instance="i1")
        tracing, metrics = build_tracing("worker", settings), build_metrics("worker", settings)
        with tracing.span("x", parent=SAMPLED, links=[SAMPLED], attributes={"headrace.epoch": 3}):
            pass
        metrics.token_gaps.record(0.1, {"model_name": "m"}, 3)
        tracing.shutdown(60)
        metrics.shutdown(60)
        (span,) = receiver.wait_for(len, timeout_s=60)
        receiver.wait_for_metric("headrace_inter_token_latency", timeout_s=60)
    assert (span.name, span.service, span.trace_id) == ("x", "headrace-worker", TRACE)
    assert span.attributes == {"headrace.epoch": 3}
    assert span.links[0].trace_id == TRACE


def test_a_receiver_that_is_away_does_not_hold_up_a_stop():
    """Shutdown returns within its bound, spans unsent."""
    settings = TelemetrySettings(otlp_endpoint="127.0.0.1:1")
    tracing = build_tracing("worker", settings)
    for _ in range(2000):
        tracing.begin("x").end()
    tracing.shutdown(0.2)
