"""The books of KV memory: which fixed-size blocks are free and how often each of the others is held.

    free: oldest release ──▶ [ 7, 2, 9, 4 ] ──▶ newest release
           taken first                           taken last

Free blocks are taken in the order of their release. So a block that keeps its content after release (a prefix to
be found again by hash) would be overwritten least recently used first: a lookup only has to take it out of the middle of
the free order, which an ordered dict does in constant time. A count above one means shared, and a writer has to copy first.
"""

from collections import OrderedDict
from collections.abc import Iterable


class BlockPool:
    """Hands out block numbers ``0 .. num_blocks - 1``; all or nothing, never twice."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """A pool in which everything is free."""
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._ref_counts = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Blocks that an allocation may take."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` consecutive positions from 0 on need."""
        return -(-num_tokens // self.block_size)

    def try_allocate(self, count: int) -> list[int] | None:
        """``count`` blocks held once each, or None and nothing changed when there are fewer."""
        if count > len(self._free):
            return None
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block_id in taken:
            assert self._ref_counts[block_id] == 0, block_id
            self._ref_counts[block_id] = 1
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold blocks once more that are held already."""
        for block_id in block_ids:
            assert self._ref_counts[block_id] > 0, block_id
            self._ref_counts[block_id] += 1

    def is_shared(self, block_id: int) -> bool:
        """Whether a writer would change what somebody else reads."""
        return self._ref_counts[block_id] > 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Hold blocks once less; those that nobody holds become free, in the order given."""
        for block_id in block_ids:
            assert self._ref_counts[block_id] > 0, block_id
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                self._free[block_id] = None

    def check_integrity(self, tables: Iterable[Iterable[int]] | None = None) -> None:
        """Assert that the books balance; with ``tables``, also that exactly these hold the blocks."""
        free = set(self._free)
        unheld = {block_id for block_id, count in enumerate(self._ref_counts) if count == 0}
        assert free == unheld, free ^ unheld
        assert all(count >= 0 for count in self._ref_counts)
        if tables is None:
            return
        held = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                held[block_id] += 1
        assert held == self._ref_counts, (held, self._ref_counts)
