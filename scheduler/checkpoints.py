"""Stores what is logged of running requests, so that a takeover reads little and the log can forget what lies before.

checkpoint asked for ──▶ stored in the record ──▶ the log's mark moves up to it
"""

from common.lengths import LENGTHS
from common.streams import reply_log
from common.streams.ownership import Answer, Done, Lost, checkpoint_step
from common.wire.records import encode_progress
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import Checkpointing


class Checkpoints:
    """Of the requests of a partition."""

    def __init__(self, led: LedPartition) -> None:
        """Nothing is asked for yet."""
        self._led = led

    def look(self, request: LedRequest, now_s: float) -> None:
        """Ask for a checkpoint if enough is logged since the last one, or a little for long enough."""
        num_new = request.progress.next_seq - request.checkpoint_seq
        if num_new <= 0 or request.is_checkpointing:
            return
        if not request.checkpoint_s:
            request.checkpoint_s = now_s
        if num_new < LENGTHS.checkpoint_tokens and (
            now_s - request.checkpoint_s < LENGTHS.checkpoint_s
        ):
            return
        self.store(request, now_s)

    def store(self, request: LedRequest, now_s: float) -> None:
        """Ask for one now; everything in the request's progress is confirmed."""
        request.checkpoint_s = now_s
        request.checkpoint_seq = request.progress.next_seq
        request.is_checkpointing = True
        progress = request.progress
        progress.epoch = request.epoch
        step = checkpoint_step(
            request.id, request.epoch, encode_progress(progress), progress.next_seq
        )
        self._led.records.ask(step, Checkpointing(request, progress.log_id))

    def stored(self, purpose: Checkpointing, answer: Answer) -> None:
        """The record answered."""
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
