"""The worker session on the scheduler's side: what workers say as plain values, what they are told as messages.

Each message is translated once. The token path (``step_from_pb``) makes one value for each sequence of a step and
nothing for each token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.domain import FinishReason, MatchedStop, TraceContext
from common.logprobs import Logprobs
from common.records import Failure, Progress, PromptRecord
from common.wire import vocabulary
from common.wire.logprobs import logprobs_from_pb
from common.wire.records import UndecodableError, failure_from_pb, progress_to_pb, prompt_from_pb
from common.wire.request import parse_body
from headrace.internal.v1 import records_pb2
from headrace.internal.v1 import worker_service_pb2 as pb

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a worker is and what it has."""

    worker_id: str
    incarnation: str
    protocol: int
    model: str
    model_revision: str
    card_hash: bytes
    fingerprint: str
    kv_blocks: int
    block_size: int
    max_seqs: int
    max_batch_tokens: int


@dataclass(frozen=True, slots=True)
class CardChunk:
    """Part of a serialized model card."""

    offset: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Credit:
    """What a worker can take, as it saw itself."""

    free_seqs: int
    free_blocks: int
    pending_prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Life sign."""

    last_step_age_ms: int
    credit: Credit | None


@dataclass(frozen=True, slots=True)
class CacheDelta:
    """Short hashes of prefix blocks that a worker has given up, and of those that it has now: in this order."""

    evicted: Sequence[int]
    added: Sequence[int]


@dataclass(frozen=True, slots=True)
class Draining:
    """The worker wants to leave."""

    reason: str


@dataclass(frozen=True, slots=True)
class SequenceFinish:
    """End of a choice as the worker sees it."""

    reason: FinishReason
    matched_stop: MatchedStop | None
    text: str
    failure: Failure | None


@dataclass(slots=True)
class SequenceOutput:
    """Output of one sequence in one step."""

    request_id: str
    epoch: int
    attempt: int
    index: int
    token_ids: tuple[int, ...]
    text: str
    text_chars: tuple[int, ...]
    finish: SequenceFinish | None
    prompt: PromptRecord | None
    logprobs: tuple[Logprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceReturned:
    """A sequence that the worker gave back."""

    request_id: str
    epoch: int
    attempt: int
    reason: str


@dataclass(slots=True)
class StepOutput:
    """Everything one step brought forth."""

    sequences: list[SequenceOutput]
    returned: list[SequenceReturned]
    credit: Credit | None
    took_s: float = 0.0
    prefill_tokens: int = 0


Said = Hello | CardChunk | Credit | CacheDelta | Heartbeat | Draining | StepOutput
"""What a worker may say."""


@dataclass(frozen=True, slots=True)
class OpenedBody:
    """A stored body, ready to be sent on as it is, and what a leader has to know of it."""

    message: records_pb2.RequestBody
    seed: int
    num_choices: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """One request to run. ``remaining_ms`` 0 means no deadline; ``resume`` is what was generated already."""

    body: OpenedBody
    epoch: int
    attempt: int
    remaining_ms: int
    resume: Progress | None
    trace: TraceContext


def said_from_pb(message: pb.ConnectRequest) -> Said | None:
    """What a worker said; None for what this version does not use.

    Raises:
        UndecodableError: the message breaks the protocol.
    """
    kind = message.WhichOneof("event")
    match kind:
        case "output":
            return step_from_pb(message.output)
        case "heartbeat":
            credit = message.heartbeat.credit if message.heartbeat.HasField("credit") else None
            return Heartbeat(message.heartbeat.last_step_age_ms, _credit_from_pb(credit))
        case "credit":
            return _credit_from_pb(message.credit)
        case "hello":
            return _hello_from_pb(message.hello)
        case "card_chunk":
            chunk = message.card_chunk
            return CardChunk(chunk.offset, chunk.data, chunk.last)
        case "cache_delta":
            return CacheDelta(message.cache_delta.evicted, message.cache_delta.added)
        case "draining":
            return Draining(message.draining.reason)
        case _:
            return None


def step_from_pb(message: pb.StepOutput) -> StepOutput:
    """A step's output.

    Raises:
        UndecodableError: tokens and their text do not match, or a finish has no reason.
    """
    return StepOutput(
        [_sequence_from_pb(sequence) for sequence in message.sequences],
        [
            SequenceReturned(one.request_id, one.epoch, one.attempt, one.reason)
            for one in message.returned
        ],
        _credit_from_pb(message.credit if message.HasField("credit") else None),
        message.step_us / 1e6,
        message.prefill_tokens,
    )


def _sequence_from_pb(message: pb.SequenceOutput) -> SequenceOutput:
    text, text_chars = message.text, tuple(message.text_chars)
    token_ids = tuple(message.token_ids)
    if len(token_ids) != len(text_chars) or sum(text_chars) != len(text):
        raise UndecodableError(f"{message.request_id}: text does not match its tokens")
    if len(message.logprobs) not in (0, len(token_ids)):
        raise UndecodableError(f"{message.request_id}: log probabilities do not match its tokens")
    return SequenceOutput(
        message.request_id,
        message.epoch,
        message.attempt,
        message.index,
        token_ids,
        text,
        text_chars,
        _finish_from_pb(message.finish) if message.HasField("finish") else None,
        prompt_from_pb(message.prompt) if message.HasField("prompt") else None,
        logprobs_from_pb(message.logprobs),
    )


def _finish_from_pb(message: pb.SequenceFinish) -> SequenceFinish:
    try:
        reason = vocabulary.finish_reason_from_pb(message.reason)
    except KeyError as error:
        raise UndecodableError("a finish without a reason") from error
    return SequenceFinish(
        reason,
        vocabulary.matched_stop_from_pb(message.matched_stop),
        message.text,
        failure_from_pb(message.error) if message.HasField("error") else None,
    )


def _credit_from_pb(message: pb.Credit | None) -> Credit | None:
    if message is None:
        return None
    return Credit(message.free_seqs, message.free_blocks, message.pending_prefill_tokens)


def _hello_from_pb(message: pb.Hello) -> Hello:
    return Hello(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        protocol=message.protocol,
        model=message.model,
        model_revision=message.model_revision,
        card_hash=message.card_hash,
        fingerprint=message.fingerprint,
        kv_blocks=message.kv_blocks,
        block_size=message.block_size,
        max_seqs=message.max_seqs,
        max_batch_tokens=message.max_batch_tokens,
    )


def open_body(data: bytes) -> OpenedBody:
    """A body from the store.

    Raises:
        UndecodableError: the bytes are no body, or an empty one.
    """
    message = parse_body(data)
    if not message.request_id:
        raise UndecodableError("request body: it names no request")
    return OpenedBody(message, message.sampling.seed, max(1, message.sampling.n))


def assign(
    batch_id: str, traceparent: str, assignments: Iterable[Assignment]
) -> pb.ConnectResponse:
    """Run these."""
    return pb.ConnectResponse(
        assign=pb.Assign(
            batch_id=batch_id,
            traceparent=traceparent,
            assignments=[_assignment_to_pb(assignment) for assignment in assignments],
        )
    )


def _assignment_to_pb(assignment: Assignment) -> pb.Assignment:
    return pb.Assignment(
        body=assignment.body.message,
        epoch=assignment.epoch,
        attempt=assignment.attempt,
        remaining_ms=assignment.remaining_ms,
        resume=None if assignment.resume is None else progress_to_pb(assignment.resume),
        traceparent=assignment.trace.traceparent,
    )


def cancel(sequences: Iterable[tuple[str, int]], reason: FinishReason) -> pb.ConnectResponse:
    """Stop these (request, attempt)."""
    return pb.ConnectResponse(
        cancel=pb.CancelSequences(
            sequences=[
                pb.CancelSequence(request_id=request_id, attempt=attempt)
                for request_id, attempt in sequences
            ],
            reason=vocabulary.finish_reason_to_pb(reason),
        )
    )


def preempt(sequences: Iterable[tuple[str, int]]) -> pb.ConnectResponse:
    """Give these (request, attempt) back."""
    return pb.ConnectResponse(
        preempt=pb.PreemptSequences(
            sequences=[
                pb.CancelSequence(request_id=request_id, attempt=attempt)
                for request_id, attempt in sequences
            ]
        )
    )


def welcome(scheduler_id: str, partition: int, heartbeat_ms: int) -> pb.ConnectResponse:
    """The session stands."""
    return pb.ConnectResponse(
        welcome=pb.Welcome(
            scheduler_id=scheduler_id, partition=partition, heartbeat_ms=heartbeat_ms
        )
    )


def redirect(address: str) -> pb.ConnectResponse:
    """Dial ``address``; '' means try again."""
    return pb.ConnectResponse(redirect=pb.Redirect(address=address))


def card_request(offset: int) -> pb.ConnectResponse:
    """Send the card from this byte on."""
    return pb.ConnectResponse(card_request=pb.CardRequest(offset=offset))


def drain(grace_ms: int) -> pb.ConnectResponse:
    """Leave within the grace."""
    return pb.ConnectResponse(drain=pb.Drain(grace_ms=grace_ms))
