"""One tenant's requests in one class of a lane, by length bucket, in due order."""

from common.domain import Priority
from scheduler.planning.sorted_keys import SortedKeys
from scheduler.planning.waiting import Entry, Key

Place = tuple[int, float, int, "TenantLine"]
"""Sorts the tenants of a class: served how much (in quanta), when the first request is due, its number."""


class TenantLine:
    """The line of a tenant; ``place`` is where it stands among tenants, kept by whoever orders them."""

    __slots__ = ("buckets", "head", "level", "place", "tenant")

    def __init__(self, tenant: str, level: Priority) -> None:
        """Without requests."""
        self.tenant = tenant
        self.level = level
        self.buckets: dict[int, SortedKeys[Key]] = {}
        self.head: Key | None = None
        self.place: Place | None = None

    def add(self, entry: Entry) -> bool:
        """Put an entry in its place; whether it is the head now."""
        keys = self.buckets.get(entry.bucket)
        if keys is None:
            keys = self.buckets[entry.bucket] = SortedKeys()
        keys.add(entry.key)
        if self.head is not None and self.head < entry.key:
            return False
        self.head = entry.key
        return True

    def remove(self, entry: Entry) -> bool:
        """Take an entry out; whether the head is another one now, or gone."""
        keys = self.buckets[entry.bucket]
        keys.remove(entry.key)
        if not keys:
            del self.buckets[entry.bucket]
        if self.head is not entry.key:
            return False
        self.head = min((keys.first for keys in self.buckets.values()), default=None)
        return True

    def num_before(self, key: Key) -> int:
        """How many of the tenant's requests are due before ``key``."""
        return sum(keys.rank(key) for keys in self.buckets.values())
