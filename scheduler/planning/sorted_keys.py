"""Keys kept in order: insertion, removal and rank without ever sorting or shifting the whole."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])

_MAX_RUN = 512


class SortedKeys(Generic[K]):
    """Keys in ascending order, held in short runs: a bisection finds the run, another the place in it.

    runs   [a b d] [f g] [k m n z]
    lasts      d      g         z
    """

    def __init__(self) -> None:
        """Without keys."""
        self._runs: list[list[K]] = []
        self._lasts: list[K] = []
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[K]:
        for run in self._runs:
            yield from run

    @property
    def first(self) -> K:
        """The smallest key; there must be one."""
        return self._runs[0][0]

    def add(self, key: K) -> None:
        """Put a key in its place; it must not be there."""
        self._len += 1
        if not self._runs:
            self._runs.append([key])
            self._lasts.append(key)
            return
        index = min(bisect_left(self._lasts, key), len(self._runs) - 1)
        run = self._runs[index]
        insort(run, key)
        if len(run) > _MAX_RUN:
            half = len(run) // 2
            self._runs[index : index + 1] = [run[:half], run[half:]]
            self._lasts[index : index + 1] = [run[half - 1], run[-1]]
        else:
            self._lasts[index] = run[-1]

    def remove(self, key: K) -> None:
        """Take a key out; it must be there."""
        index = bisect_left(self._lasts, key)
        run = self._runs[index]
        place = bisect_left(run, key)
        assert run[place] is key, key
        del run[place]
        self._len -= 1
        if run:
            self._lasts[index] = run[-1]
        else:
            del self._runs[index], self._lasts[index]

    def rank(self, key: K) -> int:
        """How many keys come before ``key``."""
        index = bisect_left(self._lasts, key)
        before = sum(len(run) for run in self._runs[:index])
        return before + (bisect_left(self._runs[index], key) if index < len(self._runs) else 0)
