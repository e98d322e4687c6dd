"""A request as stored, with its trace context: its body for the worker, its header for ordering."""

from google.protobuf.message import DecodeError

from common.domain import GenerationRequest, OrderingHeader, OutputOptions, TraceContext
from common.wire import vocabulary
from common.wire.records import UndecodableError
from headrace.internal.v1 import records_pb2 as pb


def encode_body(request: GenerationRequest, trace: TraceContext | None = None) -> bytes:
    """The body for the request record; ``trace`` takes the place of the request's own."""
    trace = request.trace if trace is None else trace
    return pb.RequestBody(
        request_id=request.request_id,
        model=request.model,
        model_revision=request.model_revision,
        prompt_token_ids=request.prompt_token_ids,
        sampling=vocabulary.sampling_to_pb(request.sampling),
        stop=vocabulary.stop_to_pb(request.stop),
        output=vocabulary.output_to_pb(request.output),
        constraint=vocabulary.constraint_to_pb(request.constraint),
        priority=vocabulary.priority_to_pb(request.priority),
        tenant=request.tenant,
        client_request_id=request.client_request_id,
        labels=dict(request.labels),
        cache_salt=request.cache_salt,
        bypass_prefix_cache=request.bypass_prefix_cache,
        resumable=request.resumable,
        hold=request.hold,
        traceparent=trace.traceparent,
        tracestate=trace.tracestate,
        baggage=request.baggage,
    ).SerializeToString(deterministic=True)


def parse_body(data: bytes) -> pb.RequestBody:
    """The stored body as a message, to be sent on to a worker as it is.

    Raises:
        UndecodableError: the bytes are no body.
    """
    try:
        return pb.RequestBody.FromString(data)
    except DecodeError as error:
        raise UndecodableError(f"request body: {error}") from error


def most_tokens(data: bytes) -> int:
    """How many tokens a request may have, over all choices, by its stored body.

    Raises:
        UndecodableError: the bytes are no body.
    """
    body = parse_body(data)
    return body.stop.max_tokens * max(1, body.sampling.n)


def request_from_body(body: pb.RequestBody) -> GenerationRequest:
    """The request that a body holds."""
    return GenerationRequest(
        request_id=body.request_id,
        model=body.model,
        model_revision=body.model_revision,
        prompt_token_ids=tuple(body.prompt_token_ids),
        sampling=vocabulary.sampling_from_pb(body.sampling),
        stop=vocabulary.stop_from_pb(body.stop),
        priority=vocabulary.priority_from_pb(body.priority),
        tenant=body.tenant,
        client_request_id=body.client_request_id,
        labels=dict(body.labels),
        output=vocabulary.output_from_pb(body.output),
        cache_salt=body.cache_salt,
        bypass_prefix_cache=body.bypass_prefix_cache,
        constraint=vocabulary.constraint_from_pb(body.constraint),
        resumable=body.resumable,
        hold=body.hold,
        trace=TraceContext(body.traceparent, body.tracestate),
        baggage=body.baggage,
    )


def encode_header(header: OrderingHeader) -> bytes:
    """The header for the inbox entry."""
    return pb.InboxHeader(
        tenant=header.tenant,
        priority=vocabulary.priority_to_pb(header.priority),
        prompt_tokens=header.prompt_tokens,
        max_tokens=header.max_tokens,
        hold=header.hold,
        model_revision=header.model_revision,
        traceparent=header.trace.traceparent,
        tracestate=header.trace.tracestate,
        seed=header.seed,
        output=vocabulary.output_to_pb(OutputOptions(token_ids=header.wants_token_ids)),
        has_deadline=header.has_deadline,
        num_choices=header.num_choices,
        is_reserved=header.is_reserved,
        prefix_hashes=header.prefix_hashes,
        prefix_step_tokens=header.prefix_step_tokens,
    ).SerializeToString()


def decode_header(data: bytes) -> OrderingHeader:
    """The header of an inbox entry.

    Raises:
        UndecodableError: the bytes are no header.
    """
    try:
        message = pb.InboxHeader.FromString(data)
    except DecodeError as error:
        raise UndecodableError(f"inbox header: {error}") from error
    return OrderingHeader(
        tenant=message.tenant,
        priority=vocabulary.priority_from_pb(message.priority),
        prompt_tokens=message.prompt_tokens,
        max_tokens=message.max_tokens,
        hold=message.hold,
        model_revision=message.model_revision,
        seed=message.seed,
        wants_token_ids=vocabulary.wants_token_ids(message.output),
        num_choices=max(1, message.num_choices),
        trace=TraceContext(message.traceparent, message.tracestate),
        has_deadline=message.has_deadline,
        is_reserved=message.is_reserved,
        prefix_hashes=tuple(message.prefix_hashes),
        prefix_step_tokens=message.prefix_step_tokens,
    )
