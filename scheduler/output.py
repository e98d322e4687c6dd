"""What workers bring forth becomes log records. Runs once per engine step: nothing here is done per token."""

from collections import Counter

from common.domain import FinishReason
from common.wire.session import SequenceReturned, StepOutput
from scheduler.led_partition import LedPartition
from scheduler.led_request import Charged, LedRequest
from scheduler.led_worker import LedWorker
from scheduler.returns import Returns

_BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.LENGTH})


class Output:
    """Numbers tokens and hands them to the log writers."""

    def __init__(self, led: LedPartition, returns: Returns) -> None:
        """Of this partition."""
        self._led = led
        self._returns = returns

    def step(self, worker: LedWorker, step: StepOutput, now_s: float) -> None:
        """One step of one worker. What belongs to an older attempt is dropped."""
        led = self._led
        generated = Counter[Charged]()
        for output in step.sequences:
            request = led.requests.get(output.request_id)
            if request is None or not request.accepts(output.epoch, output.attempt):
                continue
            worker.saw(request.key)
            next_seq = request.next_seq
            led.write(request, request.records_of(output, now_s))
            generated[request.charged] += request.next_seq - next_seq
            if request.ending is not None:
                led.release_worker(request)
                self._learn(request)
        for (level, tenant), tokens in generated.items():
            led.queue.charge(level, tenant, generated_tokens=tokens)
        led.num_generated += generated.total()
        if step.prefill_tokens:
            led.queue.pace.prefilled(step.prefill_tokens, step.took_s)
        for returned in step.returned:
            self._returned(returned)

    def _learn(self, request: LedRequest) -> None:
        """How long it got, if that is how long it wanted to be."""
        assert request.ending is not None, request.key
        if request.ending.reason in _BY_ITSELF:
            tokens = request.next_seq // request.num_choices
            self._led.queue.lengths.learn(request.header.tenant, tokens)

    def _returned(self, returned: SequenceReturned) -> None:
        request = self._led.requests.get(returned.request_id)
        if request is not None and request.accepts(returned.epoch, returned.attempt):
            self._led.telemetry.log.info(
                "given back", request_id=request.key, reason=returned.reason
            )
            self._returns.give_back(request, f"given back: {returned.reason}")
