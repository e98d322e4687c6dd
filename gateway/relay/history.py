"""What a request's record says about its output: a result, or a checkpoint and where the log goes on."""

from common.domain import FinishReason
from common.errors import POISON_REQUEST, InternalFailure
from common.records import ChoiceProgress, Failure, FinishRecord, Progress
from common.request_status import RequestStatus
from common.streams.following import Record
from common.wire.records import (
    TerminalRecord,
    UndecodableError,
    decode_progress,
    decode_terminal,
)

_REASON_OF_STATUS = {
    RequestStatus.FINISHED: FinishReason.STOP,
    RequestStatus.CANCELLED: FinishReason.CANCELLED,
    RequestStatus.EXPIRED: FinishReason.DEADLINE,
    RequestStatus.FAILED: FinishReason.ERROR,
    RequestStatus.DEAD: FinishReason.ERROR,
}


def result_of(record: Record) -> TerminalRecord | None:
    """The request's result, if it has ended. Its progress always holds the last finish.

    Raises:
        InternalFailure: what is stored cannot be read.
    """
    if not record.terminal:
        return None
    try:
        terminal = decode_terminal(record.terminal)
    except UndecodableError as error:
        raise unreadable(error) from error
    _complete(terminal)
    return terminal


def checkpoint_of(record: Record) -> tuple[Progress, str]:
    """What is known of a request that has not ended, and the log position behind it.

    Raises:
        InternalFailure: what is stored cannot be read.
    """
    if not record.checkpoint:
        return Progress(), record.start
    try:
        progress = decode_progress(record.checkpoint)
    except UndecodableError as error:
        raise unreadable(error) from error
    return progress, progress.log_id


def unreadable(error: Exception) -> InternalFailure:
    """What a caller is told about a record that does not decode."""
    return InternalFailure(
        f"the request's record cannot be read: {error}", reason="UNREADABLE_RECORD"
    )


def _complete(terminal: TerminalRecord) -> None:
    """A request that never ran may have ended by its record alone; followers still get a finish."""
    progress = terminal.progress
    if progress.last_finish is not None:
        return
    choice = progress.choices.setdefault(0, ChoiceProgress(0))
    choice.finish = FinishRecord(
        seq=progress.next_seq,
        index=0,
        reason=_REASON_OF_STATUS[terminal.status],
        failure=_failure(terminal),
        timings=terminal.timings,
    )


def _failure(terminal: TerminalRecord) -> Failure | None:
    if terminal.failure is not None or terminal.status is not RequestStatus.DEAD:
        return terminal.failure
    return Failure("INTERNAL", "the request was set aside", POISON_REQUEST)
