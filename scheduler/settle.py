"""From the log to the record: confirmed facts, checkpoints, terminal records, acks. In this order, always.

finish confirmed in the log ──▶ terminal record ──▶ mark removed ──▶ entry acked
"""

from common.records import FenceRecord
from common.request_status import status_of_finish
from common.streams import reply_log
from common.streams.ownership import Answer, Done, Ended, Lost, checkpoint_step, finish_step
from common.wire.records import TerminalRecord, encode_progress, encode_terminal
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.log_writer import Appended
from scheduler.messages import Checkpointing, Finishing
from scheduler.returns import Returns

# A takeover reads at most what lies between two checkpoints of a request.
CHECKPOINT_TOKENS = 64
CHECKPOINT_INTERVAL_S = 2.0


class Settle:
    """Draws the conclusions from what the log holds."""

    def __init__(self, led: LedPartition, returns: Returns) -> None:
        """Of this partition."""
        self._led = led
        self._returns = returns

    def appended(self, message: Appended) -> None:
        """The log holds more."""
        led = self._led
        touched: dict[str, LedRequest] = {}
        fenced: list[LedRequest] = []
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
        if fenced:
            led.recover(message.log, message.log_id, fenced)
        now_s = led.clock()
        for request in touched.values():
            self._confirmed(request, now_s)
        for request_id in message.unmarked:
            entry = led.acks_after_unmark.pop(request_id, None)
            if entry is not None:
                led.acks.add(*entry)
        if led.parked:
            led.wants_plan = True

    def _confirmed(self, request: LedRequest, now_s: float) -> None:
        if request.ending is not None:
            if not request.num_unconfirmed:
                self._led.ended.append(request)
        elif request.is_returning:
            self._returns.go_on(request)
        else:
            self._checkpoint(request, now_s)

    def _checkpoint(self, request: LedRequest, now_s: float) -> None:
        num_new = request.progress.next_seq - request.checkpoint_seq
        if num_new <= 0 or request.is_checkpointing:
            return
        if not request.checkpoint_s:
            request.checkpoint_s = now_s
        if num_new < CHECKPOINT_TOKENS and now_s - request.checkpoint_s < CHECKPOINT_INTERVAL_S:
            return
        request.checkpoint_s = now_s
        request.checkpoint_seq = request.progress.next_seq
        request.is_checkpointing = True
        request.progress.epoch = request.epoch
        progress = request.progress
        step = checkpoint_step(
            request.id, request.epoch, encode_progress(progress), progress.next_seq
        )
        self._led.records.ask(step, Checkpointing(request, request.progress.log_id))

    def checkpointed(self, purpose: Checkpointing, answer: Answer) -> None:
        """A checkpoint is stored: the log may forget what lies before it."""
        request = purpose.request
        request.is_checkpointing = False
        if self._led.requests.get(request.key) is not request:
            return
        if isinstance(answer, Done):
            # Not once the end is written: removing the mark is the last that is said about it.
            if not request.is_settling:
                position_ms = reply_log.id_ms(purpose.log_id)
                self._led.logs.mark(request.log, request.key, position_ms)
        elif isinstance(answer, Lost):
            self._led.drop(request)

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
        request.move(status_of_finish(finish.reason))
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
        step = finish_step(request.id, request.epoch, request.status, encode_terminal(terminal))
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
            led.telemetry.ended(request.status)
        elif not isinstance(answer, Ended):
            led.telemetry.log.error("not settled", request_id=request.key, answer=str(answer))
        led.let_go(request.log, request.key, request.header.priority, request.entry_id)
        led.forget(request)
