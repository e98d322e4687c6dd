"""How a running request comes back into the queue: given back, or its worker is gone (which `workers` counts).

    give_back ──▶ is_returning, until its appends in flight are confirmed ──▶ requeue ──▶ waits again

Nothing is decided on unconfirmed tokens: the next worker is told exactly what the log holds.
"""

from common.request_status import RequestStatus
from common.streams.ownership import requeue_step
from scheduler.ending import Ending
from scheduler.failures import MAX_WORKER_LOSSES, poison
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import Requeuing

_MAX_OUTCOME_CHARS = 100


class Returns:
    """Puts requests back."""

    def __init__(self, led: LedPartition, ending: Ending) -> None:
        """Of this partition."""
        self._led = led
        self._ending = ending

    def give_back(self, request: LedRequest, outcome: str) -> None:
        """No worker runs it any more; ``outcome`` says how its attempt ended."""
        self._led.release_worker(request)
        request.outcome = " ".join(outcome.split())[:_MAX_OUTCOME_CHARS]
        if request.is_taking:  # its batch finds the worker gone, and gives it back then
            return
        assert request.status is RequestStatus.RUNNING, request.key
        if request.is_open:
            request.is_returning = True
            self.go_on(request)

    def go_on(self, request: LedRequest) -> None:
        """Requeue it, if everything about it is confirmed and decided."""
        if (
            not request.is_returning
            or request.num_unconfirmed
            or request.awaits_verdict is not None
        ):
            return
        request.is_returning = False
        led = self._led
        if request.end_wanted is not None:
            self._ending.end_here(request)
            return
        request.move(RequestStatus.QUEUED)
        request.waiting_since_s = led.clock()
        self._requeue(request)
        if request.worker_losses >= MAX_WORKER_LOSSES:
            # The count is in the record by now: whoever takes over comes to the same end.
            led.telemetry.log.error("poison request", request_id=request.key)
            self._ending.fail(request, poison())
        else:
            self._led.enqueue(request)

    def absolve(self, request: LedRequest) -> None:
        """The worker that was taken for dead is back: one loss less, wherever the request is by now."""
        request.worker_losses -= 1
        request.awaits_verdict = None
        led = self._led
        if led.requests.get(request.key) is not request:
            return
        request.outcome = "connection lost"
        if request.is_returning:
            self.go_on(request)
        elif request.key in led.queue:
            # It may have been taken for a suspect; a count in the record that is one too high is put right, too.
            led.queue.remove(request.key)
            led.enqueue(request)
            self._requeue(request)

    def _requeue(self, request: LedRequest) -> None:
        step = requeue_step(
            request.id,
            request.epoch,
            request.worker_losses,
            request.progress.next_seq,
            request.outcome,
        )
        self._led.records.ask(step, Requeuing(request))
