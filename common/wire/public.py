"""Answers and events as clients get them (``headrace.v1``)."""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from common.domain import Usage
from common.logprobs import Logprobs
from common.model_card import ModelCard
from common.records import ChoiceProgress, FinishRecord, PromptRecord, Timings
from common.request_status import RequestStatus
from common.wire import vocabulary
from common.wire.logprobs import logprobs_to_pb
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class AcceptedFacts:
    """What is said of a request when it was accepted, and again with its result."""

    request_id: str
    model: str
    model_revision: str
    seed: int
    admitted_ms: int


def timestamp(unix_ms: int) -> Timestamp:
    """A moment of the partition's node."""
    message = Timestamp()
    message.FromMilliseconds(unix_ms)
    return message


def accepted_event(facts: AcceptedFacts, seq: int) -> pb.GenerateStreamResponse:
    """The first event of a stream."""
    return pb.GenerateStreamResponse(
        seq=seq,
        accepted=gen.Accepted(
            request_id=facts.request_id,
            model=facts.model,
            model_revision=facts.model_revision,
            seed=facts.seed,
            accepted_at=timestamp(facts.admitted_ms),
        ),
        usage=gen.Usage(),
    )


def prompt_event(prompt: PromptRecord, usage: Usage, seq: int) -> pb.GenerateStreamResponse:
    """A worker took up the prompt."""
    return pb.GenerateStreamResponse(
        seq=seq,
        prompt=gen.PromptProcessed(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_prompt_tokens,
            logprobs=logprobs_to_pb(prompt.logprobs),
        ),
        usage=vocabulary.usage_to_pb(usage),
    )


def delta_event(
    seq: int,
    index: int,
    text: str,
    token_ids: Sequence[int],
    usage: Usage,
    completion_tokens: int,
    *,
    with_ids: bool,
    logprobs: Sequence[Logprobs] = (),
) -> pb.GenerateStreamResponse:
    """New output. ``usage`` is that of the prompt; with this event, ``completion_tokens`` are generated.

    Built once per token, so field by field: submessages given to a constructor are made and then copied.
    """
    message = pb.GenerateStreamResponse()
    message.seq = seq
    message.count = len(token_ids)
    delta = message.delta
    delta.index = index
    delta.text = text
    if with_ids:
        delta.token_ids.extend(token_ids)
    if logprobs:
        delta.logprobs.extend(logprobs_to_pb(logprobs))
    counted = message.usage
    counted.prompt_tokens = usage.prompt_tokens
    counted.completion_tokens = completion_tokens
    counted.cached_prompt_tokens = usage.cached_prompt_tokens
    counted.from_response_cache = usage.from_response_cache
    return message


def finish_event(
    finish: FinishRecord, usage: Usage, from_seq: int = 0
) -> pb.GenerateStreamResponse:
    """A choice ended; to who follows from ``from_seq`` on, no event is before it."""
    return pb.GenerateStreamResponse(
        seq=max(finish.seq, from_seq),
        finish=gen.ChoiceFinished(
            index=finish.index,
            finish_reason=vocabulary.finish_reason_to_pb(finish.reason),
            matched_stop=vocabulary.matched_stop_to_pb(finish.matched_stop),
            timings=None if finish.timings is None else vocabulary.timings_to_pb(finish.timings),
            last=finish.last,
        ),
        usage=vocabulary.usage_to_pb(usage),
    )


def keepalive_event(
    status: RequestStatus,
    position: int | None,
    usage: Usage,
    seq: int,
    *,
    queue_unreachable: bool = False,
) -> pb.GenerateStreamResponse:
    """Nothing new."""
    return pb.GenerateStreamResponse(
        seq=seq,
        keepalive=gen.KeepAlive(
            status=vocabulary.status_to_pb(status),
            queue_position=position,
            queue_unreachable=queue_unreachable,
        ),
        usage=vocabulary.usage_to_pb(usage),
    )


def generate_response(
    facts: AcceptedFacts,
    choices: Sequence[ChoiceProgress],
    prompt: PromptRecord | None,
    usage: Usage,
    timings: Timings | None,
    *,
    with_ids: bool,
) -> pb.GenerateResponse:
    """A whole answer."""
    return pb.GenerateResponse(
        request_id=facts.request_id,
        model=facts.model,
        model_revision=facts.model_revision,
        choices=[
            _choice(choice, with_ids=with_ids)
            for choice in sorted(choices, key=lambda choice: choice.index)
        ],
        usage=vocabulary.usage_to_pb(usage),
        seed=facts.seed,
        timings=None if timings is None else vocabulary.timings_to_pb(timings),
        prompt_logprobs=logprobs_to_pb(() if prompt is None else prompt.logprobs),
    )


def model_to_pb(card: ModelCard, num_workers: int, aliases: Sequence[str] = ()) -> pb.Model:
    """A model that can be asked for."""
    return pb.Model(
        name=card.model,
        revision=card.revision,
        architecture=card.architecture,
        quantization=card.quantization,
        context_tokens=card.context_tokens,
        vocab_size=card.vocab_size,
        has_chat_template=bool(card.chat_template),
        workers=num_workers,
        aliases=aliases,
    )


def _choice(choice: ChoiceProgress, *, with_ids: bool) -> gen.Choice:
    message = gen.Choice(
        index=choice.index,
        text=choice.text,
        token_ids=choice.token_ids if with_ids else None,
        logprobs=logprobs_to_pb(choice.logprobs),
    )
    if choice.finish is not None:
        message.finish_reason = vocabulary.finish_reason_to_pb(choice.finish.reason)
        matched = vocabulary.matched_stop_to_pb(choice.finish.matched_stop)
        if matched is not None:
            message.matched_stop.CopyFrom(matched)
    return message
