"""What the end of a request means for its caller, and what stays open is filled in."""

import pytest

from common.domain import FinishReason, Partition, Priority
from common.errors import Unavailable
from common.records import Failure, FinishRecord, LogRecord, PromptRecord, TokensRecord
from common.wire.snapshot import ClassStatus, PartitionStatus
from gateway.ending import error_at_end
from gateway.queue_views import retry_after_s
from gateway.relay.mailbox import Mailbox


def finish(reason: FinishReason, failure: Failure | None = None) -> FinishRecord:
    """The last finish."""
    return FinishRecord(0, 0, reason, failure=failure)


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_good_ends(reason: FinishReason) -> None:
    """OK."""
    assert error_at_end(finish(reason), Mailbox(1)) is None


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (FinishReason.CANCELLED, "CANCELLED"),
        (FinishReason.DEADLINE, "DEADLINE_EXCEEDED"),
        (FinishReason.ERROR, "INTERNAL"),
    ],
)
def test_other_ends(reason: FinishReason, code: str) -> None:
    """Each has its code."""
    error = error_at_end(finish(reason), Mailbox(1))
    assert error is not None
    assert error.code == code


def test_the_stage_of_a_deadline() -> None:
    """Queue until the prompt is taken up, prefill until the first token, decode after."""
    mailbox = Mailbox(1)
    stages = []
    for fact in (None, PromptRecord(0, "w"), TokensRecord(0, 0, (1,), "a", (1,))):
        if fact is not None:
            mailbox.push(LogRecord("r", 1, fact))
        error = error_at_end(finish(FinishReason.DEADLINE), mailbox)
        assert error is not None
        stages.append(error.metadata["stage"])
    assert stages == ["queue", "prefill", "decode"]


def test_a_stored_failure_that_a_retry_may_mend_says_so() -> None:
    """UNAVAILABLE carries a delay, other failures none."""
    failure = Failure("UNAVAILABLE", "gone", "REQUEST_LOST")
    error = error_at_end(finish(FinishReason.ERROR, failure), Mailbox(1))
    assert isinstance(error, Unavailable)
    assert error.retry_after_s
    poison = Failure("INTERNAL", "no", "POISON_REQUEST")
    error = error_at_end(finish(FinishReason.ERROR, poison), Mailbox(1))
    assert error is not None
    assert error.retry_after_s is None


def status(drain_rate: float, ahead: int = 0) -> PartitionStatus:
    """A snapshot with so many CRITICAL requests waiting."""
    classes = [ClassStatus(Priority.CRITICAL, ahead, 0, 0)]
    return PartitionStatus(Partition("m", 0), "", classes, [], [], 0, drain_rate, 0, [])


@pytest.mark.parametrize(
    ("snapshot", "num_waiting", "expected"),
    [
        (None, 10, 1.0),
        (status(0.0), 10, 1.0),
        (status(1.0), 10, 1.0),
        (status(10.0), 1000, 10.0),
        (status(2.0, ahead=9), 10, 5.0),
        (status(1000.0), 10, 0.1),
        (status(0.001), 10, 60.0),
    ],
)
def test_retry_delays(snapshot: PartitionStatus | None, num_waiting: int, expected: float) -> None:
    """From how fast the queue drains, within bounds, and a second where nothing is known."""
    assert retry_after_s(snapshot, Priority.NORMAL, num_waiting) == pytest.approx(expected)
