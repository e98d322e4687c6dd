"""The next request for a worker: by class, order, bucket and fit (rules 2, 3, 5 and 7).

    class      bucket <=64      <=128       <=256
    CRITICAL   a e              b           .           the head is the smallest key of the highest class: a
    HIGH       .                f g         d           behind it each bucket offers its first: b, then d f

Skipping what does not fit is bounded: a few candidates of each bucket and class are looked at. Each pick that
passes a head is counted on it; for a head that was passed K times one worker is kept, and the others go on. So
it starts as soon as that worker has room, however many smaller requests there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.planning.buckets import bucket_name, prefers_bucket
from scheduler.planning.cursors import Cursor, OpenOrder, by_key
from scheduler.planning.fit import Room
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import Entry
from scheduler.planning.window import DispatchNow, WaitUntil, check_window


@dataclass(slots=True)
class Batch:
    """The picks of one plan for one worker."""

    worker_id: str
    why: str
    bucket: int | None = None
    request_ids: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add a pick; the first one says which bucket the others should be of."""
        if self.bucket is None:
            self.bucket = entry.bucket
        self.request_ids.append(entry.request.request_id)

    def reason(self, settings: PlanningSettings) -> str:
        """Why now and why these, for people."""
        assert self.bucket is not None
        return f"{self.why}, bucket {bucket_name(self.bucket, settings)}"


class Picks:
    """Chooses for one worker at a time what it gets next."""

    def __init__(
        self, order: OpenOrder, rooms: Sequence[Room], settings: PlanningSettings
    ) -> None:
        """``rooms`` are all workers that may get something."""
        self._order = order
        self._rooms = {room.worker.worker_id: room for room in rooms}
        self._settings = settings

    def check_window(self, room: Room, now_s: float) -> DispatchNow | WaitUntil | None:
        """Whether a batch for ``room`` starts now; None: there is nothing for it."""
        highest = next(self._order.levels(room.worker), None)
        if highest is None:
            return None
        head = min(highest, key=by_key).entry
        return check_window(
            room,
            head,
            (c.entry for cursors in self._order.levels(room.worker) for c in cursors),
            sum(cursor.num_left for cursor in highest if cursor.bucket == head.bucket),
            now_s,
            self._settings,
        )

    def next_for(self, room: Room, batch: Batch) -> Entry | None:
        """Take the next request for ``room``; None: nothing that may go there fits."""
        passed: list[Entry] = []
        for cursors in self._order.levels(room.worker):
            head_cursor = min(cursors, key=by_key)
            head = head_cursor.entry
            is_kept = self._is_kept(room, head)
            entry = self._take(room, batch, [] if is_kept else cursors, head_cursor)
            if entry is not head:
                if is_kept:
                    return None
                passed.append(head)
            if entry is not None:
                for head in passed:
                    head.overtaken += 1
                return entry
        return None

    def _take(self, room: Room, batch: Batch, cursors: list[Cursor], head: Cursor) -> Entry | None:
        """Take the next request of one class: of the batch's bucket, else the head, else one of ``cursors``."""
        assert head.key is not None
        if prefers_bucket(len(batch.request_ids), head.entry.overtaken, self._settings):
            alike = [cursor for cursor in cursors if cursor.bucket == batch.bucket]
            first = min(alike, key=by_key, default=head)
            if first.key is not None and room.fits(first.entry.request):
                return first.take(first.key)
        if room.fits(head.entry.request):
            return head.take(head.key)
        fitting = [
            (key, cursor)
            for cursor in cursors
            if (key := cursor.first_fitting(room, self._settings.look_ahead)) is not None
        ]
        if not fitting:
            return None
        key, cursor = min(fitting)
        return cursor.take(key)

    def _is_kept(self, room: Room, head: Entry) -> bool:
        """Whether ``room`` is kept for ``head``, which was overtaken too often."""
        if head.overtaken < self._settings.max_overtaken:
            return False
        kept = self._rooms.get(head.kept_worker or "")
        if kept is None or not self._may_hold(kept, head):
            able = [other for other in self._rooms.values() if self._may_hold(other, head)]
            kept = max(able, key=_most_room, default=None)
            head.kept_worker = kept.worker.worker_id if kept else None
        return kept is room

    def _may_hold(self, room: Room, entry: Entry) -> bool:
        return room.worker.serves(entry.request.lane_key) and room.could_fit(entry.request)


def _most_room(room: Room) -> tuple[int, str]:
    return room.worker.free_blocks * room.worker.block_size, room.worker.worker_id
