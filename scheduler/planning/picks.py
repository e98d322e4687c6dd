"""The next request for a worker: by class, tenant, order, bucket and fit (rules 2, 3, 4, 5 and 7).

    class      tenant (served)     bucket <=64    <=128    <=256
    CRITICAL   y (2 quanta)        a e            b        .        the head is what is due first of the tenant that
               x (5 quanta)        h              .        .        was served least, in the highest class: a
    HIGH       x (0 quanta)        f g            .        d        behind it each bucket offers its first: b

Skipping what does not fit is bounded: a few candidates of each bucket, of a few tenants of each class, are looked at.
Each pick that passes the head of a class is counted on it; for a head that was passed K times, or by a tenant that has got
far ahead of its own, one worker is kept, and the others go on. So it starts as soon as that worker has room, however many smaller requests there are.

Every k-th pick is for the request that is overdue longest (``ageing``) and fits. For the longest of all a worker is
kept like for a head that was passed too often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from scheduler.planning.ageing import is_turn_of_overdue
from scheduler.planning.buckets import bucket_name, prefers_bucket
from scheduler.planning.cursor import Cursor, by_key
from scheduler.planning.fit import Room
from scheduler.planning.open_order import OpenClass, OpenLine, OpenOrder
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import Entry
from scheduler.planning.window import DispatchNow, WaitUntil, check_window

# Why a request is the next one.
HEAD = "first of its class"
BUCKET = "length like its batch"
FITS = "first that fits"
OVERDUE = "overdue longest"


@dataclass(frozen=True, slots=True)
class Pick:
    """A request, why it is the next one, and how many of its tokens its worker probably has."""

    request_id: str
    why: str
    cached_tokens: int = 0

    @property
    def is_promoted(self) -> bool:
        """Whether its turn came because it had waited too long."""
        return self.why.startswith(OVERDUE)


@dataclass(slots=True)
class Batch:
    """The picks of one plan for one worker."""

    worker_id: str
    why: str
    bucket: int | None = None
    picks: list[Pick] = field(default_factory=list)

    def add(self, entry: Entry, why: str, cached_tokens: int = 0) -> None:
        """Add a pick; the first one says which bucket the others should be of."""
        if self.bucket is None:
            self.bucket = entry.bucket
        self.picks.append(Pick(entry.request.request_id, why, cached_tokens))

    def reason(self, bounds: tuple[int, ...]) -> str:
        """Why now and why these, for people."""
        assert self.bucket is not None
        return f"{self.why}, bucket {bucket_name(self.bucket, bounds)}"


class Picks:
    """Chooses for one worker at a time what it gets next."""

    def __init__(self, queue: WaitingQueue, order: OpenOrder, rooms: Sequence[Room]) -> None:
        """``rooms`` are all workers that may get something."""
        self._queue = queue
        self._order = order
        self._rooms = {room.worker.worker_id: room for room in rooms}
        self._settings = queue.settings

    def check_window(self, room: Room, now_s: float) -> DispatchNow | WaitUntil | None:
        """Whether a batch for ``room`` starts now; None: there is nothing for it."""
        highest = next(self._order.levels(room.worker), None)
        if highest is None:
            return None
        head = highest[2]
        return check_window(
            room,
            head.request,
            self._order.oldest_arrival_s(room.worker),
            self._order.num_alike(room.worker, head.request.priority, head.bucket),
            now_s,
            self._settings,
        )

    def next_for(self, room: Room, batch: Batch) -> tuple[Entry, str] | None:
        """Take the next request for ``room``, and say why this one; None: nothing that may go there fits."""
        overdue = self._order.overdue(room.worker)
        if overdue:
            longest = min(overdue, key=by_key).entry
            if self._is_kept(room, longest):
                return self._take(longest, OVERDUE) if room.fits(longest.request) else None
        found = self._overdue(room, overdue) or self._ordered(room, batch)
        return None if found is None else self._take(*found)

    def _take(self, entry: Entry, why: str) -> tuple[Entry, str]:
        self._queue.num_picked += 1
        self._order.take(entry)
        return entry, why

    def _overdue(self, room: Room, overdue: list[Cursor]) -> tuple[Entry, str] | None:
        """What is overdue longest and fits, when it is its turn; the longest of all is overtaken then."""
        if not overdue or not is_turn_of_overdue(self._queue.num_picked, self._settings):
            return None
        longest = min(overdue, key=by_key).entry
        ahead = self._settings.look_ahead
        fitting = [
            key for cursor in overdue if (key := cursor.first_fitting(room, ahead)) is not None
        ]
        entry = min(fitting)[2] if fitting else None
        if entry is not longest:
            longest.overtaken += self._settings.overdue_every
        return None if entry is None else (entry, OVERDUE)

    def _ordered(self, room: Room, batch: Batch) -> tuple[Entry, str] | None:
        passed: list[Entry] = []
        for of_class, first, head in self._order.levels(room.worker):
            if self._is_kept(room, head):
                if not room.fits(head.request):
                    return None
                found: tuple[Entry, str] | None = (head, HEAD)
            else:
                found = self._of_class(room, batch, of_class, first, head)
            if found is None or found[0] is not head:
                passed.append(head)
            if found is not None:
                for head in passed:
                    head.overtaken += 1
                return found
        return None

    def _of_class(
        self, room: Room, batch: Batch, of_class: OpenClass, first: OpenLine, head: Entry
    ) -> tuple[Entry, str] | None:
        found = self._of_tenant(room, batch, first, head)
        if found is not None:
            return found
        for line, other in of_class.first_few(self._settings.look_ahead):
            if line is first:
                continue
            if line.rank - first.rank > self._settings.max_ahead_quanta and self._keep(room, head):
                return None
            found = self._of_tenant(room, batch, line, other)
            if found is not None:
                return found[0], FITS
        return None

    def _of_tenant(
        self, room: Room, batch: Batch, line: OpenLine, head: Entry
    ) -> tuple[Entry, str] | None:
        """The next request of a tenant: of the batch's bucket, else the head, else one that fits."""
        cursors = line.cursors
        if prefers_bucket(len(batch.picks), head.overtaken, self._settings):
            for cursor in cursors:
                if cursor.bucket == batch.bucket and room.fits(cursor.entry.request):
                    return cursor.entry, HEAD if cursor.entry is head else BUCKET
        if room.fits(head.request):
            return head, HEAD
        fitting = [
            key
            for cursor in cursors
            if (key := cursor.first_fitting(room, self._settings.look_ahead)) is not None
        ]
        return (min(fitting)[2], FITS) if fitting else None

    def _is_kept(self, room: Room, head: Entry) -> bool:
        """Whether ``room`` is kept for ``head``, which was overtaken too often."""
        return head.overtaken >= self._settings.max_overtaken and self._keep(room, head)

    def _keep(self, room: Room, head: Entry) -> bool:
        """Keep a worker for ``head``, from here on, if there is one that could hold it; whether it is ``room``."""
        head.overtaken = max(head.overtaken, self._settings.max_overtaken)
        kept = self._rooms.get(head.kept_worker or "")
        if kept is None or not self._may_hold(kept, head):
            kept = next((one for one in self._roomiest if self._may_hold(one, head)), None)
            head.kept_worker = kept.worker.worker_id if kept else None
        return kept is room

    @cached_property
    def _roomiest(self) -> list[Room]:
        return sorted(self._rooms.values(), key=_most_room, reverse=True)

    def _may_hold(self, room: Room, entry: Entry) -> bool:
        return room.worker.serves(entry.request.lane_key) and room.could_fit(entry.request)


def _most_room(room: Room) -> tuple[int, str]:
    return room.worker.free_blocks * room.worker.block_size, room.worker.worker_id
