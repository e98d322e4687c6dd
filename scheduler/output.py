"""What workers bring forth becomes log records. Runs once per engine step: nothing here is done per token."""

from collections import Counter

from common.domain import FinishReason
from common.wire.session import SequenceOutput, SequenceReturned, StepOutput
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
            if request is None:
                continue
            if request.holds(output.epoch, output.attempt):
                worker.saw(request.key)
                request.held.append(output)
            elif request.accepts(output.epoch, output.attempt):
                worker.saw(request.key)
                generated[request.charged] += self._take(request, output, now_s)
        self._charge(generated)
        if step.prefill_tokens:
            led.queue.pace.prefilled(step.prefill_tokens, step.took_s)
        for returned in step.returned:
            self._returned(returned)

    def release(self, request: LedRequest, now_s: float) -> None:
        """The request is ours: what its worker has said so far counts from here on."""
        held, request.held = request.held, []
        generated = Counter[Charged]()
        for said in held:
            if isinstance(said, SequenceReturned):
                self._returned(said)
            elif request.accepts(said.epoch, said.attempt):
                generated[request.charged] += self._take(request, said, now_s)
        self._charge(generated)

    def _take(self, request: LedRequest, output: SequenceOutput, now_s: float) -> int:
        """Hand it to the log's writer; how many tokens it brings."""
        next_seq = request.next_seq
        self._led.write(request, request.records_of(output, now_s))
        if request.ending is not None:
            self._led.release_worker(request)
            self._learn(request)
        return request.next_seq - next_seq

    def _charge(self, generated: Counter[Charged]) -> None:
        led = self._led
        for (level, tenant), tokens in generated.items():
            led.queue.charge(level, tenant, generated_tokens=tokens)
        led.num_generated += generated.total()

    def _learn(self, request: LedRequest) -> None:
        """How long it got, if that is how long it wanted to be."""
        assert request.ending is not None, request.key
        if request.ending.reason in _BY_ITSELF:
            tokens = request.next_seq // request.num_choices
            self._led.queue.lengths.learn(request.header.tenant, tokens)

    def _returned(self, returned: SequenceReturned) -> None:
        request = self._led.requests.get(returned.request_id)
        if request is not None and request.holds(returned.epoch, returned.attempt):
            request.held.append(returned)
        elif request is not None and request.accepts(returned.epoch, returned.attempt):
            self._led.telemetry.log.info(
                "given back", request_id=request.key, reason=returned.reason
            )
            self._returns.give_back(request, f"given back: {returned.reason}")
