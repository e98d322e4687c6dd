"""A plan's view of one bucket of one tenant: what is still first in it, without touching the queue."""

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from scheduler.planning.fit import Room
from scheduler.planning.sorted_keys import SortedKeys
from scheduler.planning.waiting import Entry, Key

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cursor:
    """The entries that are not taken; ``key`` of the first, None behind the last."""

    __slots__ = ("_ahead", "_keys", "_taken", "_until_s", "bucket", "key")

    def __init__(
        self,
        keys: SortedKeys[Key],
        bucket: int,
        taken: set[int],
        until_s: float = float("inf"),
    ) -> None:
        """At the first of ``keys``, of those up to ``until_s``.

        ``taken`` are numbers of entries that count as gone, shared by a plan's cursors.
        """
        # Most cursors of a plan never move: those only look at the first key.
        self._keys: Iterator[Key] | SortedKeys[Key] = keys
        self._taken = taken
        self._until_s = until_s
        self._ahead: list[Key] = [keys.first] if keys else []
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
        self._read(max(0, look_ahead - len(self._ahead)))
        for key in self._ahead:
            if key[0] <= self._until_s and key[1] not in self._taken and room.fits(key[2].request):
                return key
        return None

    def stand(self) -> None:
        """Go on to the first entry that is not taken."""
        ahead, taken = self._ahead, self._taken
        while True:
            if not ahead:
                self._read(1)
            if not ahead or ahead[0][0] > self._until_s:
                self.key = None
                return
            if ahead[0][1] not in taken:
                self.key = ahead[0]
                return
            del ahead[0]

    def _read(self, count: int) -> None:
        if isinstance(self._keys, SortedKeys):
            self._keys = islice(self._keys, 1, None)
        self._ahead += islice(self._keys, count)


by_key = attrgetter("key")
