"""A plan's view of the order: what is still first in each class and bucket, without touching the queue."""

from collections.abc import Iterator
from operator import attrgetter

from common.domain import Priority
from scheduler.planning.fit import WorkerView
from scheduler.planning.lanes import Lane, LaneKey
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import Entry, Key

_LEVELS = tuple(sorted(Priority, reverse=True))


class Cursor:
    """The first entry of one class and bucket of a lane that is not taken; ``key`` is None behind the last."""

    __slots__ = ("_keys", "_skip", "bucket", "key", "num_left")

    def __init__(
        self, keys: Iterator[Key], length: int, bucket: int, skip: frozenset[str]
    ) -> None:
        """At the first entry whose request is not in ``skip``."""
        self._keys = keys
        self._skip = skip
        self.bucket = bucket
        self.num_left = length
        self.key: Key | None = None
        self._advance()

    @property
    def entry(self) -> Entry:
        """The entry it stands at; there must be one."""
        assert self.key is not None
        return self.key[2]

    def take(self) -> Entry:
        """Take the entry it stands at and go on to the next."""
        entry = self.entry
        self.num_left -= 1
        self._advance()
        return entry

    def _advance(self) -> None:
        for key in self._keys:
            if key[2].request.request_id not in self._skip:
                self.key = key
                return
        self.key = None


by_key = attrgetter("key")


class OpenOrder:
    """The cursors of all lanes, shared by all workers of a plan: what one takes is gone for the others."""

    def __init__(self, queue: WaitingQueue, skip: frozenset[str]) -> None:
        """Nothing taken yet; ``skip`` names requests that no worker may get."""
        self._skip = skip
        self._lanes = {
            key: tuple(self._cursors(lane, level) for level in _LEVELS)
            for key, lane in queue.lanes()
        }
        self._of_workers: dict[tuple[str, str], tuple[list[Cursor], ...]] = {}

    def levels(self, worker: WorkerView) -> Iterator[list[Cursor]]:
        """The cursors that ``worker`` may take from, class by class, highest first; only where there are any."""
        kind = (worker.fingerprint, worker.model_revision)
        levels = self._of_workers.get(kind)
        if levels is None:
            levels = self._of_workers[kind] = self._served(worker)
        for cursors in levels:
            live = [cursor for cursor in cursors if cursor.key is not None]
            if live:
                yield live

    def _served(self, worker: WorkerView) -> tuple[list[Cursor], ...]:
        lanes = [levels for key, levels in self._lanes.items() if worker.serves(key)]
        return tuple(
            [cursor for levels in lanes for cursor in levels[index]]
            for index in range(len(_LEVELS))
        )

    def _cursors(self, lane: Lane, level: Priority) -> list[Cursor]:
        return [
            Cursor(iter(keys), len(keys), bucket, self._skip)
            for bucket, keys in enumerate(lane.buckets(level))
            if keys
        ]


def lanes_without_worker(
    queue: WaitingQueue, workers: list[WorkerView]
) -> Iterator[tuple[LaneKey, Lane]]:
    """Lanes that none of ``workers`` serves."""
    for key, lane in queue.lanes():
        if not any(worker.serves(key) for worker in workers):
            yield key, lane
