"""How a request ends other than by its worker's own finish: cancel, deadline, refusal, damage.

waiting             ended here: the finish is logged, then settled like any other
taken, recovered    the wish is kept until it is known what there is to end
running             the worker is asked; if it does not answer in time, ended here and its attempt is void
"""

from common.domain import FinishReason
from common.lengths import LENGTHS
from common.records import Failure
from common.request_status import RequestStatus
from common.wire import orders
from scheduler.alarms import CancelOverdue, DeadlineDue
from scheduler.failures import failure_of_end
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest

# A worker looks at its messages between steps; a step that takes longer is not worth waiting for.
CANCEL_TIMEOUT_S = LENGTHS.worker_cancel_s
# The worker ends what it runs at its deadline by itself; the leader does it only for one that does not.
DEADLINE_BACKSTOP_S = LENGTHS.worker_deadline_s


class Ending:
    """Ends requests."""

    def __init__(self, led: LedPartition) -> None:
        """Of this partition."""
        self._led = led

    def cancel(self, request: LedRequest, cause: str) -> None:
        """Somebody cancelled it, or everybody left."""
        failure = failure_of_end(FinishReason.CANCELLED, stage="", cause=cause)
        self.end(request, FinishReason.CANCELLED, failure)

    def expire(self, request: LedRequest, why: str = "") -> None:
        """Its deadline has passed, or cannot be made any more, and why."""
        stage = "queue"
        if request.status is RequestStatus.RUNNING:
            stage = "decode" if request.next_seq else "prefill"
        failure = failure_of_end(FinishReason.DEADLINE, stage=stage, cause=why)
        self.end(request, FinishReason.DEADLINE, failure)

    def fail(self, request: LedRequest, failure: Failure) -> None:
        """It cannot go on."""
        self.end(request, FinishReason.ERROR, failure)

    def end(self, request: LedRequest, reason: FinishReason, failure: Failure | None) -> None:
        """End it, wherever it is. The first wish stands."""
        if not request.is_open or request.end_wanted is not None:
            return
        request.end_wanted = (reason, failure)
        if request.is_taking or request.is_recovering or request.is_returning:
            return
        worker = self._led.workers.get(request.worker_id)
        if request.status is RequestStatus.RUNNING and worker is not None:
            worker.session.send(
                orders.cancel([(request.key, request.epoch, request.attempt)], reason)
            )
            overdue_s = self._led.clock() + CANCEL_TIMEOUT_S
            self._led.alarms.set(overdue_s, CancelOverdue(request.key, request.attempt))
            return
        self.end_here(request)

    def end_here(self, request: LedRequest) -> None:
        """Log the end that is wanted; whatever a worker still says about the request is void."""
        assert request.is_open, request.key
        assert request.end_wanted is not None, request.key
        request.attempt += 1
        request.is_returning = False
        self._led.dequeue(request)
        self._led.release_worker(request)
        self._led.write(request, request.end_records(*request.end_wanted, self._led.clock()))

    def deadline_due(self, alarm: DeadlineDue) -> None:
        """A deadline has passed; a worker that runs the request notices by itself, a little later."""
        request = self._led.requests.get(alarm.request_id)
        if request is None:
            return
        backstop_s = request.deadline_s + DEADLINE_BACKSTOP_S
        if request.status is RequestStatus.RUNNING and self._led.clock() < backstop_s:
            self._led.alarms.set(backstop_s, alarm)
        else:
            self.expire(request)

    def cancel_overdue(self, alarm: CancelOverdue) -> None:
        """A worker did not answer a cancel in time."""
        request = self._led.requests.get(alarm.request_id)
        if request is not None and request.is_open and request.attempt == alarm.attempt:
            self._led.telemetry.log.warning("cancel unanswered", request_id=request.key)
            self.end_here(request)
