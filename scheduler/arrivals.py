"""Intake on the loop's side: entries become owned, owned ones wait or are recovered first.

A first read (epoch 1) has no past. Everything else may have tokens in the log that only a fence makes final, so it is
decided upon only after its log was read up to the fence (``takeover``).
"""

from common.domain import OrderingHeader, RequestId
from common.records import Failure, FenceRecord, LogRecord, Progress
from common.request_status import RequestStatus
from common.streams.inbox import InboxEntry
from common.streams.ownership import Answer, Ended, Owned
from common.wire.records import UndecodableError, decode_progress
from common.wire.request import decode_header
from scheduler.alarms import DeadlineDue
from scheduler.checkpoints import Checkpoints
from scheduler.ending import Ending
from scheduler.failures import MAX_STALLS, MAX_WORKER_LOSSES, poison, stalled, undecodable
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import EntriesRead, Owning, Recovered
from scheduler.newcomers import Newcomers
from scheduler.settlements import Due, EndedEntry


class Arrivals:
    """Takes entries and decides what becomes of them."""

    def __init__(
        self,
        led: LedPartition,
        ending: Ending,
        checkpoints: Checkpoints,
        newcomers: Newcomers,
    ) -> None:
        """Into this partition."""
        self._led = led
        self._ending = ending
        self._checkpoints = checkpoints
        self._newcomers = newcomers

    def entries_read(self, message: EntriesRead) -> None:
        """Own what is not known yet."""
        led = self._led
        num_free = self._newcomers.num_free() if message.are_new else 0
        for entry in message.entries:
            if (entry.priority, entry.entry_id) in led.entries:
                continue
            request_id = RequestId.parse(entry.request_id or "")
            if request_id is None or request_id.partition != led.partition:
                led.telemetry.log.error("unreadable inbox entry", entry=entry.entry_id)
                led.acks.add(entry.priority, entry.entry_id)
                continue
            if not self._newcomers.welcome(request_id, entry, num_free):
                led.own(request_id, entry)

    def owned(self, purpose: Owning, answer: Answer) -> None:
        """The record answered."""
        if isinstance(answer, Owned):
            self._admit(purpose.request_id, purpose.entry, answer)
            return
        entry, led = purpose.entry, self._led
        led.entries.discard((entry.priority, entry.entry_id))
        request_id = str(purpose.request_id)
        if isinstance(answer, Ended) and answer.log:
            led.let_go(answer.log, request_id, _ended(purpose))
            return
        if not isinstance(answer, Ended):
            led.telemetry.log.error("no record to own", request_id=request_id, answer=str(answer))
        led.settlements.add(_ended(purpose))

    def _admit(self, request_id: RequestId, entry: InboxEntry, owned: Owned) -> None:
        led, now_s = self._led, self._led.clock()
        former = led.requests.get(str(request_id))
        if former is not None:  # it stood in the inbox twice; the last epoch counts
            led.drop(former)
        header, progress, failure = _decode(entry, owned)
        first_ms, node_time = owned.first_dispatch_ms, led.node_time
        node_time.saw(owned.now_ms, now_s)
        request = LedRequest(
            id=request_id,
            entry_id=entry.entry_id,
            header=header,
            epoch=owned.epoch,
            log=owned.log,
            start=owned.start,
            owned_s=now_s,
            arrival_s=node_time.past_s(owned.admitted_ms, now_s),
            deadline_s=node_time.here_s(owned.deadline_ms),
            progress=progress,
            fingerprint=owned.fingerprint,
            worker_losses=owned.worker_losses,
            num_stalls=owned.stalls,
            num_dispatches=owned.attempts,
            first_dispatch_s=None if first_ms is None else node_time.past_s(first_ms, now_s),
        )
        led.add(request)
        if owned.cancel:
            request.is_recovering = (
                True  # the wish is kept until the end of this function, or of the recovery
            )
            self._ending.cancel(request, owned.cancel)
        request.is_recovering = not _is_fresh(owned)
        if request.is_recovering:
            led.recovering.add(request.key)
            led.telemetry.taken_over(1)
            led.write(request, [LogRecord(request.key, request.epoch, FenceRecord())])
        if failure is not None:
            request.is_recovering = False
            led.recovering.discard(request.key)
            request.end_wanted = None
            self._ending.fail(request, failure)
        elif not request.is_recovering:
            self._start(request)

    def recovered(self, message: Recovered) -> None:
        """A request's past is known."""
        request = message.request
        if self._led.requests.get(request.key) is not request or not request.is_recovering:
            return
        request.is_recovering = False
        self._led.recovering.discard(request.key)
        has_progress = message.progress.next_seq > request.checkpoint_seq
        request.restore(message.progress)
        self._led.recharge(request)
        request.seed = message.seed
        request.num_choices = max(request.num_choices, message.num_choices)
        self._led.telemetry.spans.taken_over(request, self._led.clock())
        if (finish := message.progress.last_finish) is not None:
            request.ending = finish
            self._led.ended.append(request)
        elif message.failure is not None:
            request.end_wanted = None
            self._ending.fail(request, message.failure)
        else:
            if has_progress:  # in the record at once: the next takeover is to know of it
                request.num_stalls = 0
                self._checkpoints.store(request, self._led.clock())
            self._start(request)

    def _start(self, request: LedRequest) -> None:
        """Let it wait, unless it is to end."""
        led = self._led
        request.waiting_since_s = (
            request.arrival_s if request.first_dispatch_s is None else led.clock()
        )
        if request.end_wanted is not None:
            self._ending.end_here(request)
        elif request.deadline_s <= led.clock():
            self._ending.expire(request)
        elif request.worker_losses >= MAX_WORKER_LOSSES:
            self._ending.fail(request, poison())
        elif request.num_stalls >= MAX_STALLS:
            self._ending.fail(request, stalled())
        else:
            led.alarms.set(request.deadline_s, DeadlineDue(request.key))
            led.enqueue(request)


def _ended(purpose: Owning) -> EndedEntry:
    """The entry of a request that others have ended; it may be up to us to settle its quota."""
    entry, due = purpose.entry, None
    try:
        header = decode_header(entry.header)
    except UndecodableError:
        return EndedEntry(entry.priority, entry.entry_id)
    if header.is_reserved:
        due = Due(header.tenant, purpose.request_id)
    return EndedEntry(entry.priority, entry.entry_id, due)


def _is_fresh(owned: Owned) -> bool:
    return (
        owned.epoch == 1 and owned.status_before is RequestStatus.QUEUED and not owned.checkpoint
    )


def _decode(entry: InboxEntry, owned: Owned) -> tuple[OrderingHeader, Progress, Failure | None]:
    header, progress = OrderingHeader("", entry.priority, 0, 0), Progress()
    try:
        header = decode_header(entry.header)
    except UndecodableError:
        return header, progress, undecodable("header")
    try:
        progress = decode_progress(owned.checkpoint)
    except UndecodableError:
        return header, progress, undecodable("checkpoint")
    return header, progress, None
