"""How a running request comes back into the queue: given back, or its worker is gone.

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
from scheduler.waiting_room import WaitingRoom


class Returns:
    """Puts requests back."""

    def __init__(self, led: LedPartition, ending: Ending, waiting_room: WaitingRoom) -> None:
        """Of this partition."""
        self._led = led
        self._ending = ending
        self._waiting_room = waiting_room

    def give_back(self, request: LedRequest) -> None:
        """No worker runs it any more."""
        self._led.release_worker(request)
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
        elif request.worker_losses >= MAX_WORKER_LOSSES:
            # The place for quarantine and dead letters: the one request that no worker survives.
            self._end_as_poison(request)
        else:
            request.move(RequestStatus.QUEUED)
            step = requeue_step(request.id, request.epoch, request.worker_losses)
            led.records.ask(step, Requeuing(request))
            self._waiting_room.admit(request)

    def _end_as_poison(self, request: LedRequest) -> None:
        self._led.telemetry.log.error("poison request", request_id=request.key)
        self._ending.fail(request, poison())
