"""The order of waiting requests that need the same of a worker, split by class and length bucket."""

from collections.abc import Iterator
from heapq import merge

from common.domain import Priority
from scheduler.planning.sorted_keys import SortedKeys
from scheduler.planning.waiting import Entry, Key


class Lane:
    """Requests with one fingerprint and model revision: whatever may serve one of them may serve all."""

    def __init__(self, num_buckets: int) -> None:
        """Without requests."""
        self._order = {
            level: tuple(SortedKeys() for _ in range(num_buckets)) for level in Priority
        }
        self._len = 0
        self.impatient: dict[str, None] = {}

    def __len__(self) -> int:
        return self._len

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        self._order[entry.level][entry.bucket].add(entry.key)
        self._len += 1
        if not entry.request.hold:
            self.impatient[entry.request.request_id] = None

    def remove(self, entry: Entry) -> None:
        """Take an entry out."""
        self._order[entry.level][entry.bucket].remove(entry.key)
        self._len -= 1
        self.impatient.pop(entry.request.request_id, None)

    def buckets(self, level: Priority) -> tuple[SortedKeys, ...]:
        """The order inside a class, by bucket."""
        return self._order[level]

    def num_before(self, key: Key, level: Priority) -> int:
        """How many requests of this lane are ahead of one at ``key`` in ``level``."""
        higher = sum(len(keys) for p in Priority if p > level for keys in self._order[p])
        return higher + sum(keys.rank(key) for keys in self._order[level])

    def in_order(self, level: Priority) -> Iterator[Key]:
        """The keys of a class, whatever their buckets."""
        return merge(*self._order[level])
