"""Trace context: given, current, or new; never invalid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from headrace.client.connection import call_metadata
from headrace.client.trace import TraceContext


def test_new_contexts_differ_and_ask_to_be_recorded() -> None:
    """Each has its own trace id, which is what people search for."""
    one, two = TraceContext.new(), TraceContext.new()
    assert one.trace_id != two.trace_id
    assert one.traceparent == f"00-{one.trace_id}-{one.traceparent[36:52]}-01"


@given(st.text(max_size=60))
def test_what_is_no_traceparent_is_refused(text: str) -> None:
    """A server would drop it and the caller would search in vain."""
    with pytest.raises(ValueError, match="not a W3C traceparent"):
        TraceContext(text)


@pytest.mark.parametrize(
    "text",
    [
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        f"ff-{'1' * 32}-{'1' * 16}-01",
        f"00-{'A' * 32}-{'1' * 16}-01",
    ],
)
def test_ids_that_w3c_forbids_are_refused(text: str) -> None:
    """All zeros, version ff, capitals."""
    with pytest.raises(ValueError, match="not a W3C traceparent"):
        TraceContext(text)


def test_the_current_span_is_taken_over() -> None:
    """With its state and its decision not to be recorded."""
    context = SpanContext(0xABC, 0xDEF, False, TraceFlags(0), TraceState([("k", "v")]))
    with otel.use_span(NonRecordingSpan(context)):
        taken = TraceContext.for_call(None)
    assert taken == TraceContext(f"00-{0xABC:032x}-{0xDEF:016x}-00", "k=v")
    assert taken.headers()[1] == ("tracestate", "k=v")


def test_a_given_context_outranks_the_current_span() -> None:
    """What the caller says holds."""
    given_context = TraceContext.new()
    with otel.use_span(NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(1)))):
        assert TraceContext.for_call(given_context) is given_context


def test_a_traceparent_in_the_metadata_stays_alone() -> None:
    """Two of them would be worse than either."""
    mine = (("traceparent", "mine"),)
    assert call_metadata(mine, TraceContext.new()) == mine
