"""What the record says about requests that we think are ours."""

from common.streams.ownership import (
    Answer,
    CancelRequested,
    Done,
    Ended,
    FollowedFrom,
    Lost,
    Missing,
)
from scheduler.ending import Ending
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import Beaten


class Beats:
    """Draws the conclusions from heartbeats."""

    def __init__(self, led: LedPartition, ending: Ending) -> None:
        """Of this partition."""
        self._led = led
        self._ending = ending

    def beaten(self, message: Beaten) -> None:
        """A heartbeat came back. What it found may be older than what we have done since."""
        for (request_id, epoch), answer in message.found.items():
            request = self._led.requests.get(request_id)
            if request is not None and request.epoch == epoch and not request.is_settling:
                self._note_gateways(request, answer)
                self.found(request, answer)
        for log in self._led.logs.logs:
            if log not in self._led.num_open_by_log:
                self._led.logs.retire(log)

    def _note_gateways(self, request: LedRequest, answer: Answer) -> None:
        match answer:
            case FollowedFrom():
                request.gateways = frozenset({request.log, *answer.gateways})
            case Done():
                request.gateways = frozenset({request.log})

    def found(self, request: LedRequest, answer: Answer) -> None:
        """Act on what the record says."""
        if self._led.requests.get(request.key) is not request:
            return
        match answer:
            case Done() | FollowedFrom():
                return
            case CancelRequested():
                self._ending.cancel(request, answer.reason)
            case Lost():
                self._led.telemetry.log.warning("not ours any more", request_id=request.key)
                self._led.drop(request)
            case Ended() | Missing():
                # A missing record is not a lost race; until it can be restored from here, it ends the work.
                self._led.telemetry.log.warning(
                    "nothing to go on with", request_id=request.key, answer=str(answer)
                )
                self._led.drop(request)
                self._led.let_go(request.log, request.key, request.ended_entry(None))
            case _:
                self._led.telemetry.log.error(
                    "damaged record", request_id=request.key, answer=str(answer)
                )
                self._led.drop(request)
