"""Spans of single requests: each wait, each takeover, the settlement. Recorded when they are over, so none stays open.

wait ─▶ dispatch ─▶ (worker's spans) ─▶ wait again after a loss ─▶ … ─▶ settle
"""

from common import telemetry_names as names
from common.domain import Partition
from common.keys import GROUP
from common.tracing import SpanKind, Tracing
from scheduler.led_request import LedRequest


class RequestSpans:
    """Records them below the span that admitted the request."""

    def __init__(self, partition: Partition, tracing: Tracing) -> None:
        """Of this partition's requests."""
        self._partition = str(partition)
        self._tracing = tracing

    def waited(self, request: LedRequest, since_s: float, now_s: float, outcome: str) -> None:
        """A wait is over: by dispatch, or because the request ended in the queue."""
        if not self._tracing.is_recording:
            return
        attributes = self._common(request) | {
            names.MESSAGING_OPERATION_NAME: "wait",
            names.MESSAGING_OPERATION_TYPE: "receive",
            names.MESSAGING_CONSUMER_GROUP_NAME: GROUP,
            names.HEADRACE_PRIORITY: request.header.priority.name,
            names.HEADRACE_QUEUE_TIME_S: now_s - since_s,
            names.HEADRACE_OUTCOME: outcome,
        }
        if request.outcome:
            attributes[names.HEADRACE_REQUEUED_AFTER] = request.outcome
        self._tracing.record_span(
            names.SpanName.QUEUE,
            start_s=since_s,
            end_s=now_s,
            parent=request.header.trace,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )

    def taken_over(self, request: LedRequest, now_s: float) -> None:
        """The past of a request that another scheduler had led is known."""
        self._tracing.record_span(
            names.SpanName.TAKEOVER,
            start_s=request.owned_s,
            end_s=now_s,
            parent=request.header.trace,
            attributes=self._common(request)
            | {names.HEADRACE_TOKENS_RESUMED: request.progress.next_seq},
        )

    def settled(self, request: LedRequest, now_s: float) -> None:
        """The terminal record is written."""
        if not self._tracing.is_recording:
            return
        attributes = self._common(request) | {
            names.MESSAGING_OPERATION_NAME: "settle",
            names.MESSAGING_OPERATION_TYPE: "settle",
            names.HEADRACE_STATUS: request.status.value,
            names.HEADRACE_WORKER_LOSSES: request.worker_losses,
        }
        if request.ending is not None and request.ending.failure is not None:
            attributes[names.ERROR_TYPE] = request.ending.failure.reason
        self._tracing.record_span(
            names.SpanName.SETTLE,
            start_s=request.settling_s,
            end_s=now_s,
            parent=request.header.trace,
            kind=SpanKind.CLIENT,
            attributes=attributes,
        )

    def _common(self, request: LedRequest) -> dict[str, str | int | float]:
        return {
            names.HEADRACE_REQUEST_ID: request.key,
            names.HEADRACE_EPOCH: request.epoch,
            names.HEADRACE_ATTEMPT: request.attempt,
            names.MESSAGING_SYSTEM: names.SYSTEM_REDIS,
            names.MESSAGING_DESTINATION_NAME: self._partition,
            names.MESSAGING_MESSAGE_ID: request.key,
        }
