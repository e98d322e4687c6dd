"""Spans as OTLP sends them, encoded in a fraction of the SDK's time.

Encoding is the larger half of what a span costs, and attributes are the larger half of that. Most of them are the same in
span after span (model, worker, partition, operation), so their bytes are kept here. What is sent means the same, field by
field: protobuf merges what stands one behind the other, so a message's bytes may be put together from those of its parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as pb
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode

# What is left out of a message has its zero value, so only what is not zero is set.
_HAS_IS_REMOTE = pb.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE = pb.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_KINDS = {
    SpanKind.INTERNAL: pb.Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: pb.Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: pb.Span.SPAN_KIND_CLIENT,
    SpanKind.PRODUCER: pb.Span.SPAN_KIND_PRODUCER,
    SpanKind.CONSUMER: pb.Span.SPAN_KIND_CONSUMER,
}
_LENGTH_DELIMITED = 2
# Prompts and answers, where they are traced, are longer and come once.
_MAX_KEPT_CHARS = 128


class QuickSpanExporter(OTLPSpanExporter):
    """The SDK's exporter, with its connection, retries and bounds; only the encoding is ours."""

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        return encode(data)


def encode(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """The request for spans of one process, which has one resource and one scope."""
    resource, scope = spans[0].resource, spans[0].instrumentation_scope
    number = pb.ScopeSpans.SPANS_FIELD_NUMBER
    of_scope = pb.ScopeSpans.FromString(b"".join(_field(number, _span(span)) for span in spans))
    if scope is not None:
        of_scope.scope.CopyFrom(InstrumentationScope(name=scope.name, version=scope.version or ""))
    of_resource = pb.ResourceSpans(resource=Resource(attributes=_pairs(resource.attributes)))
    of_resource.scope_spans.append(of_scope)
    return ExportTraceServiceRequest(resource_spans=[of_resource])


def _span(span: ReadableSpan) -> bytes:
    context, parent = span.context, span.parent
    assert context is not None, span.name
    message = pb.Span(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        parent_span_id=parent.span_id.to_bytes(8, "big") if parent else b"",
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        dropped_attributes_count=span.dropped_attributes,
        dropped_events_count=span.dropped_events,
        dropped_links_count=span.dropped_links,
        flags=_flags(parent),
    )
    if context.trace_state:
        message.trace_state = context.trace_state.to_header()
    message.events.extend(_event(event) for event in span.events)
    message.links.extend(_link(link) for link in span.links)
    status = span.status
    # A status that is not set is sent as an empty message, as the SDK does it.
    message.status.SetInParent()
    if status.status_code is not StatusCode.UNSET:
        message.status.code = status.status_code.value
        message.status.message = status.description or ""
    return message.SerializeToString() + _attributes(span.attributes or {})


def _event(event: Event) -> pb.Span.Event:
    return pb.Span.Event(
        name=event.name, time_unix_nano=event.timestamp, attributes=_pairs(event.attributes)
    )


def _link(link: Link) -> pb.Span.Link:
    """Ours have no attributes."""
    context = link.context
    return pb.Span.Link(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        flags=_flags(context),
    )


def _flags(context: SpanContext | None) -> int:
    return _HAS_IS_REMOTE | (_IS_REMOTE if context is not None and context.is_remote else 0)


def _attributes(attributes: Mapping[str, Any]) -> bytes:
    found = []
    for key, value in attributes.items():
        if isinstance(value, list):
            value = tuple(value)
        is_short = not isinstance(value, str) or len(value) <= _MAX_KEPT_CHARS
        found.append(_kept_attribute(key, value) if is_short else _attribute(key, value))
    return b"".join(found)


def _attribute(key: str, value: Any) -> bytes:
    """The field of a span's message."""
    return _field(pb.Span.ATTRIBUTES_FIELD_NUMBER, _pair(key, value).SerializeToString())


# By type as well: 1, 1.0 and True are equal keys and different values.
_kept_attribute = lru_cache(maxsize=4096, typed=True)(_attribute)


def _pairs(attributes: Mapping[str, Any] | None) -> list[KeyValue]:
    return [_pair(key, value) for key, value in (attributes or {}).items()]


def _pair(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=_value(value))


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case str():
            return AnyValue(string_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case tuple() | list():
            return AnyValue(array_value=ArrayValue(values=[_value(one) for one in value]))
    # Nothing of ours; but one strange value must not cost a whole export.
    return AnyValue(string_value=str(value))


def _field(number: int, message: bytes) -> bytes:
    """A message as a field of another one."""
    return bytes((*_varint(number << 3 | _LENGTH_DELIMITED), *_varint(len(message)))) + message


def _varint(number: int) -> Iterable[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
