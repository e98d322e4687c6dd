"""Where requests wait for a worker; what has started waits for one with equal numerics, and not for ever."""

from scheduler.alarms import ResumeOverdue
from scheduler.ending import Ending
from scheduler.failures import no_equal_worker
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest


class WaitingRoom:
    """The way into the queue."""

    def __init__(self, led: LedPartition, ending: Ending) -> None:
        """Of this partition."""
        self._led = led
        self._ending = ending

    def admit(self, request: LedRequest) -> None:
        """Let it wait."""
        led = self._led
        led.enqueue(request)
        if request.progress.next_seq:
            overdue_s = led.clock() + led.settings.resume_wait_s
            led.alarms.set(overdue_s, ResumeOverdue(request.key, request.attempt))

    def resume_overdue(self, alarm: ResumeOverdue) -> None:
        """A started request waited long; it fails unless an equal worker is here and merely busy."""
        led = self._led
        request = led.requests.get(alarm.request_id)
        if request is None or request.attempt != alarm.attempt or request.key not in led.queue:
            return
        fingerprints = {worker.session.hello.fingerprint for worker in led.workers.values()}
        if request.fingerprint in fingerprints:
            led.alarms.set(led.clock() + led.settings.resume_wait_s, alarm)
        else:
            self._ending.fail(request, no_equal_worker())
