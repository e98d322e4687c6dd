"""What workers bring forth becomes log records. Runs once per engine step: nothing here is done per token."""

from common.wire.session import SequenceReturned, StepOutput
from scheduler.led_partition import LedPartition
from scheduler.led_worker import LedWorker
from scheduler.returns import Returns


class Output:
    """Numbers tokens and hands them to the log writers."""

    def __init__(self, led: LedPartition, returns: Returns) -> None:
        """Of this partition."""
        self._led = led
        self._returns = returns

    def step(self, worker: LedWorker, step: StepOutput, now_s: float) -> None:
        """One step of one worker. What belongs to an older attempt is dropped."""
        led = self._led
        for output in step.sequences:
            request = led.requests.get(output.request_id)
            if request is None or not request.accepts(output.epoch, output.attempt):
                continue
            worker.saw(request.key)
            led.write(request, request.records_of(output, now_s))
            if request.ending is not None:
                led.release_worker(request)
        for returned in step.returned:
            self._returned(returned)

    def _returned(self, returned: SequenceReturned) -> None:
        request = self._led.requests.get(returned.request_id)
        if request is not None and request.accepts(returned.epoch, returned.attempt):
            self._led.telemetry.log.info(
                "given back", request_id=request.key, reason=returned.reason
            )
            self._returns.give_back(request, f"given back: {returned.reason}")
