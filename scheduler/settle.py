"""From the log to the record: confirmed facts, terminal records, acks. In this order, always.

finish confirmed in the log ──▶ terminal record ──▶ mark removed ──▶ quota settled ──▶ entry acked
"""

from collections import Counter

from common.errors import POISON_REQUEST
from common.records import FenceRecord, FinishRecord, LogRecord, PromptRecord, TokensRecord
from common.request_status import RequestStatus, status_of_finish
from common.streams.ownership import Answer, Done, Ended, Lost, finish_step
from common.wire.records import TerminalRecord, encode_terminal
from scheduler.checkpoints import Checkpoints
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.log_writer import Appended
from scheduler.messages import Finishing
from scheduler.returns import Returns
from scheduler.telemetry import PartitionTelemetry


class _Usage:
    """What one append added: each logged token once, a prompt when it is taken up, by whoever had it confirmed."""

    def __init__(self, telemetry: PartitionTelemetry) -> None:
        self._telemetry = telemetry
        self._prompt_tokens: Counter[str] = Counter()
        self._generation_tokens: Counter[str] = Counter()

    def count(self, request: LedRequest, record: LogRecord) -> None:
        tenant = self._telemetry.tenant_of(request.header.tenant)
        match record.fact:
            case TokensRecord() as tokens:
                self._generation_tokens[tenant] += len(tokens.token_ids)
            case PromptRecord():
                self._prompt_tokens[tenant] += request.header.prompt_tokens

    def tell(self) -> None:
        for tenant in self._prompt_tokens.keys() | self._generation_tokens.keys():
            self._telemetry.logged(
                tenant, self._prompt_tokens[tenant], self._generation_tokens[tenant]
            )


class Settle:
    """Draws the conclusions from what the log holds."""

    def __init__(self, led: LedPartition, returns: Returns, checkpoints: Checkpoints) -> None:
        """Of this partition."""
        self._led = led
        self._returns = returns
        self._checkpoints = checkpoints

    def appended(self, message: Appended) -> None:
        """The log holds more."""
        led = self._led
        touched: dict[str, LedRequest] = {}
        fenced: list[LedRequest] = []
        usage = _Usage(led.telemetry)
        for record in message.records:
            request = led.requests.get(record.request_id)
            if request is None or request.epoch != record.epoch:
                continue
            if isinstance(record.fact, FenceRecord):
                if request.is_recovering:
                    fenced.append(request)
            else:
                request.confirm(record, message.log_id)
                touched[request.key] = request
                usage.count(request, record)
        usage.tell()
        if fenced:
            led.recover(message.log, message.log_id, fenced)
        now_s = led.clock()
        for request in touched.values():
            self._confirmed(request, now_s)
        for request_id in message.unmarked:
            entry = led.acks_after_unmark.pop(request_id, None)
            if entry is not None:
                led.settlements.add(entry)
        if led.parked:
            led.wants_plan = True

    def _confirmed(self, request: LedRequest, now_s: float) -> None:
        if request.ending is not None:
            if not request.num_unconfirmed:
                self._led.ended.append(request)
        elif request.is_returning:
            self._returns.go_on(request)
        else:
            self._checkpoints.look(request, now_s)

    def settle(self) -> None:
        """Write the terminal record of everything whose last finish is in the log."""
        led = self._led
        ended, led.ended = led.ended, []
        for request in ended:
            if led.requests.get(request.key) is request and not request.is_settling:
                self._finish(request)

    def _finish(self, request: LedRequest) -> None:
        finish = request.ending
        assert finish is not None, request.key
        worker_id = request.worker_id or (
            request.progress.prompt.worker_id if request.progress.prompt else ""
        )
        self._led.dequeue(request)
        self._led.release_worker(request)
        request.is_settling = True
        request.settling_s = self._led.clock()
        if request.waiting_since_s is not None:
            self._led.telemetry.spans.waited(
                request, request.waiting_since_s, request.settling_s, finish.reason.value
            )
        request.move(_status_of(finish))
        request.progress.epoch = request.epoch
        terminal = TerminalRecord(
            status=request.status,
            progress=request.progress,
            usage=request.progress.usage(request.header.prompt_tokens),
            timings=finish.timings or request.timings(self._led.clock()),
            seed=request.seed or request.header.seed,
            worker_id=worker_id,
            failure=finish.failure,
            model_revision=request.header.model_revision,
            wants_token_ids=request.header.wants_token_ids,
            prompt_tokens=request.header.prompt_tokens,
        )
        reason = "" if finish.failure is None else finish.failure.reason
        step = finish_step(
            request.id, request.epoch, request.status, encode_terminal(terminal), reason
        )
        self._led.records.ask(step, Finishing(request))

    def finished(self, purpose: Finishing, answer: Answer) -> None:
        """A terminal record is written, or somebody else's stands."""
        led, request = self._led, purpose.request
        if led.requests.get(request.key) is not request:
            return
        if isinstance(answer, Lost):
            led.drop(request)
            return
        if isinstance(answer, Done):
            ending = request.ending
            led.telemetry.ended(request.status, None if ending is None else ending.failure)
            led.telemetry.spans.settled(request, led.clock())
        elif not isinstance(answer, Ended):
            led.telemetry.log.error("not settled", request_id=request.key, answer=str(answer))
        # The record that stands may be another's, of another epoch: then it says what was used.
        used = request.progress.usage(request.header.prompt_tokens)
        led.let_go(
            request.log,
            request.key,
            request.ended_entry(used if isinstance(answer, Done) else None),
        )
        led.forget(request)


def _status_of(finish: FinishRecord) -> RequestStatus:
    if finish.failure is not None and finish.failure.reason == POISON_REQUEST:
        return RequestStatus.DEAD
    return status_of_finish(finish.reason)
