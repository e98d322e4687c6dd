"""Tells a worker what to run: one `Assign` for a batch, with the spans of its requests."""

from collections.abc import Sequence

from common.wire import orders
from common.wire.orders import Assignment, OpenedBody
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import Batch


class Sending:
    """Sends batches."""

    def __init__(self, led: LedPartition) -> None:
        """Of this partition."""
        self._led = led

    def send(
        self, batch: Batch, members: Sequence[tuple[LedRequest, OpenedBody]], now_s: float
    ) -> None:
        """To the batch's worker, which is here."""
        telemetry, worker = self._led.telemetry, batch.worker
        assignments = [self._assignment(*one, batch, now_s) for one in members]
        contexts = [
            (request.header.priority, one.trace)
            for (request, _), one in zip(members, assignments, strict=True)
        ]
        span = telemetry.batch(
            batch.id, worker.worker_id, batch.reason, contexts, batch.picked_s, now_s
        )
        worker.session.send(orders.assign(batch.id, span.traceparent, assignments))

    def _assignment(
        self, request: LedRequest, body: OpenedBody, batch: Batch, now_s: float
    ) -> Assignment:
        telemetry = self._led.telemetry
        telemetry.queued(request, now_s)
        context = telemetry.dispatched(request, batch.id, batch.reason, batch.picked_s, now_s)
        return Assignment(
            body=body,
            epoch=request.epoch,
            attempt=request.attempt,
            remaining_ms=max(1, round((request.deadline_s - now_s) * 1000)),
            resume=request.progress if request.progress.choices else None,
            trace=context,
        )
