"""A record as GetRequest shows it."""

from common.domain import Priority, RequestId
from common.request_status import RequestStatus
from common.streams.following import Record
from common.wire import public, vocabulary
from common.wire.records import TerminalRecord
from common.wire.snapshot import PartitionStatus
from common.wire.status import error_of, request_error_of
from gateway.attachment import accepted_facts
from gateway.relay.history import checkpoint_of, result_of
from headrace.v1 import inference_service_pb2 as pb


def view_of(
    request_id: RequestId, record: Record, status: PartitionStatus | None
) -> pb.GetRequestResponse:
    """Where a request is, its result once it has ended, and what it waits for before.

    Raises:
        HeadraceError: what is stored cannot be read.
    """
    facts, with_ids = accepted_facts(request_id, record)
    message = pb.GetRequestResponse(
        request_id=facts.request_id,
        status=vocabulary.status_to_pb(record.status),
        model=facts.model,
        model_revision=facts.model_revision,
        priority=vocabulary.priority_to_pb(Priority[record.priority.upper()]),
        accepted_at=public.timestamp(record.admitted_ms),
        deadline=public.timestamp(record.deadline_ms),
        worker_id=record.worker_id,
        attempts=record.attempts,
    )
    result = result_of(record)
    if result is None:
        usage = checkpoint_of(record)[0].usage(record.prompt_tokens)
        message.usage.CopyFrom(vocabulary.usage_to_pb(usage))
        if record.status is RequestStatus.QUEUED:
            message.waiting_for = waiting_for(request_id, status)
        return message
    _add_result(message, facts, result, with_ids=with_ids)
    return message


def _add_result(
    message: pb.GetRequestResponse,
    facts: public.AcceptedFacts,
    result: TerminalRecord,
    *,
    with_ids: bool,
) -> None:
    message.usage.CopyFrom(vocabulary.usage_to_pb(result.usage))
    message.worker_id = result.worker_id or message.worker_id
    message.result.CopyFrom(
        public.generate_response(
            facts,
            [*result.progress.choices.values()],
            result.progress.prompt,
            result.usage,
            result.timings,
            with_ids=with_ids,
        )
    )
    if result.failure is not None:
        message.error.CopyFrom(request_error_of(error_of(result.failure)))


def waiting_for(request_id: RequestId, status: PartitionStatus | None) -> str:
    """Why a queued request does not run."""
    if status is None:
        return "a scheduler to lead its partition"
    for place in status.positions:
        if place.request_id == str(request_id):
            return place.reason or f"its turn (position {place.position})"
    return "a worker" if not status.workers else "its turn"
