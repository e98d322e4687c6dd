"""A plan's view of one bucket of one tenant: what is still first in it, without touching the queue."""

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from scheduler.planning.fit import Room
from scheduler.planning.waiting import Entry, Key


class Cursor:
    """The entries that are not taken; ``key`` of the first, None behind the last."""

    __slots__ = ("_ahead", "_keys", "_taken", "bucket", "key")

    def __init__(self, keys: Iterator[Key], bucket: int, taken: set[int]) -> None:
        """At the first of ``keys``; ``taken`` are numbers of entries that count as gone, shared by a plan's cursors."""
        self._keys = keys
        self._taken = taken
        self._ahead: list[Key] = []
        self.bucket = bucket
        self.key: Key | None = None
        self.stand()

    @property
    def entry(self) -> Entry:
        """The first entry; there must be one."""
        assert self.key is not None
        return self.key[2]

    def first_fitting(self, room: Room, look_ahead: int) -> Key | None:
        """The first of the next ``look_ahead`` entries that fits ``room``."""
        self._ahead += islice(self._keys, max(0, look_ahead - len(self._ahead)))
        for key in self._ahead:
            if key[1] not in self._taken and room.fits(key[2].request):
                return key
        return None

    def stand(self) -> None:
        """Go on to the first entry that is not taken."""
        ahead, taken = self._ahead, self._taken
        while True:
            if not ahead:
                ahead += islice(self._keys, 1)
                if not ahead:
                    self.key = None
                    return
            if ahead[0][1] not in taken:
                self.key = ahead[0]
                return
            del ahead[0]


by_key = attrgetter("key")
