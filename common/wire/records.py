"""What is stored in Redis about a request's output: log batches, checkpoints, terminal records."""

from collections.abc import Iterable
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError

from common.domain import OutputOptions, Usage
from common.records import (
    ChoiceProgress,
    Failure,
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    Timings,
    TokensRecord,
)
from common.request_status import RequestStatus
from common.wire import vocabulary
from common.wire.logprobs import logprobs_from_pb, logprobs_to_pb
from headrace.internal.v1 import records_pb2 as pb

_CODE_NUMBER = {code.name: code.value[0] for code in grpc.StatusCode}
_CODE_NAME = {number: name for name, number in _CODE_NUMBER.items()}


class UndecodableError(Exception):
    """Stored bytes do not decode: that request is contained, nothing else is harmed."""


@dataclass(frozen=True, slots=True)
class TerminalRecord:
    """The end of a request."""

    status: RequestStatus
    progress: Progress
    usage: Usage
    timings: Timings
    seed: int
    worker_id: str = ""
    failure: Failure | None = None
    model_revision: str = ""
    wants_token_ids: bool = True
    prompt_tokens: int = 0


def encode_log_batch(records: Iterable[LogRecord]) -> bytes:
    """One append."""
    return pb.LogBatch(
        records=[_log_record_to_pb(record) for record in records]
    ).SerializeToString()


def decode_log_batch(data: bytes) -> list[LogRecord]:
    """The records of one append, oldest first.

    Raises:
        UndecodableError: the bytes are no log batch.
    """
    try:
        return [_log_record_from_pb(record) for record in pb.LogBatch.FromString(data).records]
    except (DecodeError, KeyError, ValueError, AssertionError) as error:
        raise UndecodableError(f"log batch: {error}") from error


def encode_progress(progress: Progress) -> bytes:
    """A checkpoint."""
    return progress_to_pb(progress).SerializeToString()


def decode_progress(data: bytes) -> Progress:
    """A checkpoint; empty bytes are an empty one.

    Raises:
        UndecodableError: the bytes are no checkpoint.
    """
    try:
        return progress_from_pb(pb.Progress.FromString(data))
    except (DecodeError, KeyError, ValueError) as error:
        raise UndecodableError(f"checkpoint: {error}") from error


def encode_terminal(record: TerminalRecord) -> bytes:
    """A terminal record."""
    return pb.TerminalRecord(
        status=vocabulary.status_to_pb(record.status),
        progress=progress_to_pb(record.progress),
        usage=vocabulary.usage_to_pb(record.usage),
        timings=vocabulary.timings_to_pb(record.timings),
        error=None if record.failure is None else failure_to_pb(record.failure),
        worker_id=record.worker_id,
        seed=record.seed,
        model_revision=record.model_revision,
        output=vocabulary.output_to_pb(OutputOptions(token_ids=record.wants_token_ids)),
        prompt_tokens=record.prompt_tokens,
    ).SerializeToString()


def decode_terminal(data: bytes) -> TerminalRecord:
    """A terminal record.

    Raises:
        UndecodableError: the bytes are no terminal record.
    """
    try:
        message = pb.TerminalRecord.FromString(data)
        return TerminalRecord(
            status=vocabulary.status_from_pb(message.status),
            progress=progress_from_pb(message.progress),
            usage=vocabulary.usage_from_pb(message.usage),
            timings=vocabulary.timings_from_pb(message.timings),
            seed=message.seed,
            worker_id=message.worker_id,
            failure=failure_from_pb(message.error) if message.HasField("error") else None,
            model_revision=message.model_revision,
            wants_token_ids=vocabulary.wants_token_ids(message.output),
            prompt_tokens=message.prompt_tokens,
        )
    except (DecodeError, KeyError, ValueError) as error:
        raise UndecodableError(f"terminal record: {error}") from error


def progress_to_pb(progress: Progress) -> pb.Progress:
    """Progress as stored, and as sent to a worker that resumes."""
    return pb.Progress(
        choices=[
            pb.ChoiceProgress(
                index=choice.index,
                token_ids=choice.token_ids,
                text=choice.text,
                text_chars=choice.text_chars,
                logprobs=logprobs_to_pb(choice.logprobs),
                finish=None if choice.finish is None else finish_to_pb(choice.finish),
            )
            for choice in progress.choices.values()
        ],
        seq_choices=progress.seq_choices,
        prompt=None if progress.prompt is None else prompt_to_pb(progress.prompt),
        log_id=progress.log_id,
        epoch=progress.epoch,
    )


def progress_from_pb(message: pb.Progress) -> Progress:
    """Progress from its message."""
    return Progress(
        choices={
            choice.index: ChoiceProgress(
                index=choice.index,
                token_ids=list(choice.token_ids),
                text=choice.text,
                text_chars=list(choice.text_chars),
                logprobs=list(logprobs_from_pb(choice.logprobs)),
                finish=finish_from_pb(choice.finish) if choice.HasField("finish") else None,
            )
            for choice in message.choices
        },
        seq_choices=list(message.seq_choices),
        prompt=prompt_from_pb(message.prompt) if message.HasField("prompt") else None,
        log_id=message.log_id or "0-0",
        epoch=message.epoch,
    )


def failure_to_pb(failure: Failure) -> pb.ErrorInfo:
    """A stored error."""
    return pb.ErrorInfo(
        code=_CODE_NUMBER[failure.code],
        message=failure.message,
        reason=failure.reason,
        metadata=dict(failure.metadata),
    )


def failure_from_pb(message: pb.ErrorInfo) -> Failure:
    """A stored error from its message."""
    return Failure(
        _CODE_NAME.get(message.code, "UNKNOWN"),
        message.message,
        message.reason,
        dict(message.metadata),
    )


def prompt_to_pb(prompt: PromptRecord) -> pb.PromptRecord:
    """A prompt taken up."""
    return pb.PromptRecord(
        cached_tokens=prompt.cached_tokens,
        worker_id=prompt.worker_id,
        after_us=max(0, round(prompt.after_s * 1e6)),
        waited_us=max(0, round(prompt.waited_s * 1e6)),
        logprobs=logprobs_to_pb(prompt.logprobs),
    )


def prompt_from_pb(message: pb.PromptRecord) -> PromptRecord:
    """A prompt taken up, from its message."""
    return PromptRecord(
        message.cached_tokens,
        message.worker_id,
        message.after_us / 1e6,
        message.waited_us / 1e6,
        logprobs_from_pb(message.logprobs),
    )


def finish_to_pb(finish: FinishRecord) -> pb.FinishRecord:
    """An ended choice."""
    return pb.FinishRecord(
        seq=finish.seq,
        index=finish.index,
        reason=vocabulary.finish_reason_to_pb(finish.reason),
        matched_stop=vocabulary.matched_stop_to_pb(finish.matched_stop),
        text=finish.text,
        last=finish.last,
        error=None if finish.failure is None else failure_to_pb(finish.failure),
        timings=None if finish.timings is None else vocabulary.timings_to_pb(finish.timings),
    )


def finish_from_pb(message: pb.FinishRecord) -> FinishRecord:
    """An ended choice from its message."""
    return FinishRecord(
        seq=message.seq,
        index=message.index,
        reason=vocabulary.finish_reason_from_pb(message.reason),
        matched_stop=vocabulary.matched_stop_from_pb(message.matched_stop),
        text=message.text,
        last=message.last,
        failure=failure_from_pb(message.error) if message.HasField("error") else None,
        timings=vocabulary.timings_from_pb(message.timings)
        if message.HasField("timings")
        else None,
    )


def _log_record_to_pb(record: LogRecord) -> pb.LogRecord:
    message = pb.LogRecord(request_id=record.request_id, epoch=record.epoch)
    match record.fact:
        case TokensRecord() as tokens:
            message.tokens.CopyFrom(
                pb.TokensRecord(
                    seq=tokens.seq,
                    index=tokens.index,
                    token_ids=tokens.token_ids,
                    text=tokens.text,
                    text_chars=tokens.text_chars,
                    logprobs=logprobs_to_pb(tokens.logprobs),
                )
            )
        case FinishRecord() as finish:
            message.finish.CopyFrom(finish_to_pb(finish))
        case PromptRecord() as prompt:
            message.prompt.CopyFrom(prompt_to_pb(prompt))
        case FenceRecord():
            message.fence.SetInParent()
    return message


def _log_record_from_pb(message: pb.LogRecord) -> LogRecord:
    fact: TokensRecord | FinishRecord | PromptRecord | FenceRecord
    match message.WhichOneof("fact"):
        case "tokens":
            tokens = message.tokens
            fact = TokensRecord(
                tokens.seq,
                tokens.index,
                tuple(tokens.token_ids),
                tokens.text,
                tuple(tokens.text_chars),
                logprobs_from_pb(tokens.logprobs),
            )
        case "finish":
            fact = finish_from_pb(message.finish)
        case "prompt":
            fact = prompt_from_pb(message.prompt)
        case "fence":
            fact = FenceRecord()
        case _:
            raise KeyError("a log record without a fact")
    return LogRecord(message.request_id, message.epoch, fact)
