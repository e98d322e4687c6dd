"""What workers are told by their scheduler, as messages: requests to run, and what else a session needs."""

from collections.abc import Iterable
from dataclasses import dataclass

from common.domain import FinishReason, TraceContext
from common.records import Progress
from common.wire import vocabulary
from common.wire.records import UndecodableError, progress_to_pb
from common.wire.request import parse_body
from headrace.internal.v1 import records_pb2
from headrace.internal.v1 import worker_service_pb2 as pb


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


def cancel(sequences: Iterable[tuple[str, int, int]], reason: FinishReason) -> pb.ConnectResponse:
    """Stop these (request, epoch, attempt)."""
    return pb.ConnectResponse(
        cancel=pb.CancelSequences(
            sequences=_sequences_to_pb(sequences),
            reason=vocabulary.finish_reason_to_pb(reason),
        )
    )


def preempt(sequences: Iterable[tuple[str, int, int]]) -> pb.ConnectResponse:
    """Give these (request, epoch, attempt) back."""
    return pb.ConnectResponse(preempt=pb.PreemptSequences(sequences=_sequences_to_pb(sequences)))


def _sequences_to_pb(sequences: Iterable[tuple[str, int, int]]) -> list[pb.CancelSequence]:
    return [
        pb.CancelSequence(request_id=request_id, epoch=epoch, attempt=attempt)
        for request_id, epoch, attempt in sequences
    ]


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
