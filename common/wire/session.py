"""What workers say in their session with a scheduler, as plain values; ``orders`` has what they are told.

Each message is translated once. The token path (``step_from_pb``) makes one value for each sequence of a step and
nothing for each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.domain import FinishReason, MatchedStop
from common.logprobs import Logprobs
from common.records import Failure, PromptRecord
from common.wire import vocabulary
from common.wire.logprobs import logprobs_from_pb
from common.wire.records import UndecodableError, failure_from_pb, prompt_from_pb
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
    window_tokens: int = 0


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
        window_tokens=message.window_tokens,
    )
