"""Reading a parent: the quick way and the library's agree."""

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from common.domain import TraceContext
from common.tracing import NO_TRACE, extract_context, trace_id_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "traceparent",
    [
        f"00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-ff",
        f"01-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        "",
        "00",
    ],
)
def test_a_parent_is_read_as_the_library_reads_it(traceparent):
    """What it accepts is accepted, with the same ids; what it refuses begins a new trace."""
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())
    expected = get_current_span(context).get_span_context()
    found = extract_context([("traceparent", traceparent)])
    assert (found != NO_TRACE) == expected.is_valid
    if expected.is_valid:
        assert int(trace_id_of(found), 16) == expected.trace_id
    assert found == (TraceContext(traceparent) if expected.is_valid else NO_TRACE)
