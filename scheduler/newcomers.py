"""New requests that find a worker free: planned before they are ours, so that one write makes them ours and running.

entries ─┬─▶ newcomers ─▶ plan ─┬─▶ picked: start ─┬─▶ started: like any other that was taken
         │                      │                  └─▶ not new ─┐
         └──────────────────────┴─▶ not picked ─────────────────┴─▶ own, as any entry

Nothing is logged or decided about a newcomer: it either starts, or is forgotten and comes by the way of all entries.
"""

from common.domain import RequestId
from common.records import Progress
from common.streams.inbox import InboxEntry
from common.streams.ownership import Started
from common.wire.records import UndecodableError
from common.wire.request import decode_header
from scheduler.alarms import DeadlineDue
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest


class Newcomers:
    """The new requests of one moment."""

    def __init__(self, led: LedPartition) -> None:
        """Of this partition."""
        self._led = led
        self._entries: dict[str, InboxEntry] = {}

    def num_free(self) -> int:
        """How many places there are for newcomers; none while an earlier request has no place in the queue yet."""
        led = self._led
        if led.is_taking_in:
            return 0
        now_s = led.clock()
        views = (worker.view(led.queue.lengths, now_s) for worker in led.workers.values())
        return sum(view.free_seqs for view in views if not view.draining)

    def welcome(self, request_id: RequestId, entry: InboxEntry, num_free: int) -> bool:
        """Let it be planned with all that waits, if that may find it a worker; else nothing happens."""
        led = self._led
        if len(led.queue) >= num_free or str(request_id) in led.requests:
            return False
        request = self._request(request_id, entry)
        if request is None:
            return False
        led.add(request)
        led.enqueue(request)
        self._entries[request.key] = entry
        return True

    def own_rest(self) -> None:
        """Whoever was not picked is owned as any other entry."""
        for key in list(self._entries):
            request = self._led.requests[key]
            if not request.is_taking:
                self.forget(request)

    def started(self, request: LedRequest, answer: Started, now_s: float) -> None:
        """It is ours from here on, under epoch 1."""
        led, entry = self._led, self._entries.pop(request.key)
        led.node_time.saw(answer.now_ms, now_s)
        request.is_newcomer = False
        request.owned_s = now_s
        request.arrival_s = led.node_time.past_s(entry.admitted_ms, now_s)
        request.deadline_s = led.node_time.here_s(entry.deadline_ms)
        request.waiting_since_s = request.arrival_s
        led.alarms.set(request.deadline_s, DeadlineDue(request.key))

    def forget(self, request: LedRequest) -> None:
        """It did not start: take its entry like any other."""
        led, entry = self._led, self._entries.pop(request.key)
        # Not by ``dequeue``: it has not left the queue, it comes again.
        led.queue.remove(request.key)
        led.parked.pop(request.key, None)
        led.forget(request)
        led.own(request.id, entry)

    def _request(self, request_id: RequestId, entry: InboxEntry) -> LedRequest | None:
        try:
            header = decode_header(entry.header)
        except UndecodableError:
            return None
        node_time = self._led.node_time
        if not entry.log or not node_time.is_known:
            return None
        return LedRequest(
            id=request_id,
            entry_id=entry.entry_id,
            header=header,
            epoch=1,
            log=entry.log,
            start=entry.start,
            arrival_s=node_time.past_s(entry.admitted_ms, self._led.clock()),
            deadline_s=node_time.here_s(entry.deadline_ms),
            progress=Progress(),
            is_newcomer=True,
        )
