"""Which prefix blocks a worker holds, as far as it has told: a guess that is good enough to choose a worker by."""

from collections.abc import Iterable


class PrefixIndex:
    """Short hashes of one worker's blocks; never more than the worker has blocks, whatever it says."""

    def __init__(self, max_blocks: int) -> None:
        """Nothing is known yet."""
        self._max_blocks = max_blocks
        self._hashes: dict[int, None] = {}

    def __len__(self) -> int:
        """Blocks known."""
        return len(self._hashes)

    def update(self, evicted: Iterable[int], added: Iterable[int]) -> None:
        """What went, then what came; of too many the oldest go."""
        for one in evicted:
            self._hashes.pop(one, None)
        self._hashes.update(dict.fromkeys(added))
        while len(self._hashes) > self._max_blocks:
            del self._hashes[next(iter(self._hashes))]

    def longest(self, hashes: Iterable[int]) -> int:
        """How many blocks of a text with these hashes, from its beginning, the worker holds."""
        count = 0
        for one in hashes:
            if one not in self._hashes:
                break
            count += 1
        return count
