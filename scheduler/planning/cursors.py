"""A plan's view of the order: what is still first in each class and bucket, without touching the queue."""

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter

from common.domain import Priority
from scheduler.planning.fit import Room, WorkerView
from scheduler.planning.lanes import Lane
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import Entry, Key, LaneKey

_LEVELS = tuple(sorted(Priority, reverse=True))


class Cursor:
    """The entries of one class and bucket of a lane that are not taken; ``key`` of the first, None behind the last."""

    __slots__ = ("_ahead", "_keys", "bucket", "key", "num_left")

    def __init__(self, keys: Iterator[Key], length: int, bucket: int) -> None:
        """At the first of ``keys``; there are at most ``length``."""
        self._keys = keys
        self._ahead: list[Key] = []
        self.bucket = bucket
        self.num_left = length
        self.key: Key | None = None
        self._stand()

    @property
    def entry(self) -> Entry:
        """The first entry; there must be one."""
        assert self.key is not None
        return self.key[2]

    def first_fitting(self, room: Room, look_ahead: int) -> Key | None:
        """The first of the next ``look_ahead`` entries that fits ``room``."""
        self._ahead += islice(self._keys, max(0, look_ahead - len(self._ahead)))
        return next((key for key in self._ahead if room.fits(key[2].request)), None)

    def take(self, key: Key) -> Entry:
        """Take an entry that was looked at."""
        self._ahead.remove(key)
        self.num_left -= 1
        self._stand()
        return key[2]

    def _stand(self) -> None:
        if not self._ahead:
            self._ahead += islice(self._keys, 1)
        self.key = self._ahead[0] if self._ahead else None


by_key = attrgetter("key")


class OpenOrder:
    """The cursors of all lanes, shared by all workers of a plan: what one takes is gone for the others.

    Cursors are made when a worker first looks at their class: most plans never look below the highest.
    """

    def __init__(self, queue: WaitingQueue, skip: frozenset[str]) -> None:
        """Nothing taken yet; ``skip`` names requests that no worker may get."""
        self._skip = skip
        # Who is to run alone is picked by a rule of its own (``quarantine``).
        self._lanes = [(key, lane) for key, lane in queue.lanes() if not key.alone]
        self._made: dict[tuple[LaneKey, Priority], list[Cursor]] = {}
        self._of_kinds: dict[tuple[str, str, Priority], list[Cursor]] = {}

    def levels(self, worker: WorkerView) -> Iterator[list[Cursor]]:
        """The cursors that ``worker`` may take from, class by class, highest first; only where there are any."""
        for level in _LEVELS:
            kind = (worker.fingerprint, worker.model_revision, level)
            cursors = self._of_kinds.get(kind)
            if cursors is None:
                cursors = self._of_kinds[kind] = self._served(worker, level)
            live = [cursor for cursor in cursors if cursor.key is not None]
            if live:
                yield live

    def _served(self, worker: WorkerView, level: Priority) -> list[Cursor]:
        return [
            cursor
            for key, lane in self._lanes
            if worker.serves(key)
            for cursor in self._cursors(key, lane, level)
        ]

    def _cursors(self, key: LaneKey, lane: Lane, level: Priority) -> list[Cursor]:
        cursors = self._made.get((key, level))
        if cursors is None:
            cursors = self._made[key, level] = [
                Cursor(self._unskipped(keys), len(keys), bucket)
                for bucket, keys in enumerate(lane.buckets(level))
                if keys
            ]
        return cursors

    def _unskipped(self, keys: Iterable[Key]) -> Iterator[Key]:
        if not self._skip:
            return iter(keys)
        return (key for key in keys if key[2].request.request_id not in self._skip)


def lanes_without_worker(
    queue: WaitingQueue, workers: list[WorkerView]
) -> Iterator[tuple[LaneKey, Lane]]:
    """Lanes that none of ``workers`` serves."""
    for key, lane in queue.lanes():
        if not any(worker.serves(key) for worker in workers):
            yield key, lane
