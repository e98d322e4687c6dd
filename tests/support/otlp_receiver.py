"""An OTLP gRPC receiver that a test serves itself: what services export is looked at here.

with running_otlp_receiver() as receiver:
    ...  # a service with otlp_endpoint=receiver.endpoint
    spans = receiver.wait_for(lambda spans: any(span.name == "x" for span in spans), timeout_s=5)
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.time_scale import scaled


@dataclass(frozen=True)
class SpanLink:
    """Where a link points."""

    trace_id: str
    span_id: str


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived; ids in hex, ``parent_id`` empty at a root."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    failed: bool
    status_message: str
    attributes: dict[str, Any]
    links: tuple[SpanLink, ...]
    events: tuple[str, ...]

    @property
    def duration_s(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class OtlpReceiver:
    """Collects spans and the names of metrics."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metric_names: set[str] = field(default_factory=set)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(
        self, predicate: Callable[[Sequence[ReceivedSpan]], object], timeout_s: float
    ) -> list[ReceivedSpan]:
        """The spans, once ``predicate`` holds of them; fails with what there was instead."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: predicate(self.spans), scaled(timeout_s)):
                names = sorted(f"{span.service}: {span.name}" for span in self.spans)
                raise AssertionError(f"not seen within {timeout_s} s; there were {names}")
            return list(self.spans)

    async def wait_for_async(
        self, predicate: Callable[[Sequence[ReceivedSpan]], object], timeout_s: float
    ) -> list[ReceivedSpan]:
        """``wait_for`` beside a running event loop."""
        return await asyncio.to_thread(self.wait_for, predicate, timeout_s)

    def wait_for_metric(self, name: str, timeout_s: float) -> None:
        """Return once a metric called ``name`` has arrived."""
        with self.arrived:
            found = self.arrived.wait_for(lambda: name in self.metric_names, scaled(timeout_s))
            assert found, f"{name} not among {sorted(self.metric_names)}"

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans called ``name`` that have arrived."""
        return [span for span in self.spans if span.name == name]


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request, context):  # noqa: N802 - the RPC's name
        found = []
        for resource_spans in request.resource_spans:
            service = _attributes(resource_spans.resource.attributes).get("service.name", "")
            for scope_spans in resource_spans.scope_spans:
                found += [_received(service, span) for span in scope_spans.spans]
        with self._receiver.arrived:
            self._receiver.spans += found
            self._receiver.arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request, context):  # noqa: N802 - the RPC's name
        names = {
            metric.name
            for resource_metrics in request.resource_metrics
            for scope_metrics in resource_metrics.scope_metrics
            for metric in scope_metrics.metrics
        }
        with self._receiver.arrived:
            self._receiver.metric_names |= names
            self._receiver.arrived.notify_all()
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def running_otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a free loopback port."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(max_workers=4, thread_name_prefix="otlp-receiver"))
    add_traces: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_metrics: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
    add_traces(_Traces(receiver), server)
    add_metrics(_Metrics(receiver), server)
    receiver.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait(scaled(5))


def _received(service: str, span: trace_pb2.Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        status_message=span.status.message,
        attributes=_attributes(span.attributes),
        links=tuple(SpanLink(link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        events=tuple(event.name for event in span.events),
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    return getattr(value, kind) if kind else None
