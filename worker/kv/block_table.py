"""The blocks of one sequence, in the order of positions."""

from collections.abc import Sequence

from worker.kv.blocks import BlockPool

GONE = -1
"""Stands for a block that was given back because nobody looks at its positions any more."""


class BlockTable:
    """Entry ``i`` holds positions ``i * block_size .. (i + 1) * block_size - 1``; grows at the end only.

    block_ids   [ -1 ][ -1 ][ 7 ][ 3 ][ 9 ]
                num_gone ▲   held
    """

    def __init__(self, pool: BlockPool) -> None:
        """An empty table over ``pool``."""
        self._pool = pool
        self.block_ids: list[int] = []
        self.num_gone = 0

    @property
    def held(self) -> list[int]:
        """The blocks that it holds."""
        return self.block_ids[self.num_gone :]

    @property
    def capacity_tokens(self) -> int:
        """Positions that the blocks cover, or covered."""
        return len(self.block_ids) * self._pool.block_size

    def missing_blocks(self, num_tokens: int) -> int:
        """Blocks to add before ``num_tokens`` positions are covered."""
        return max(0, self._pool.blocks_for(num_tokens) - len(self.block_ids))

    def begin_with(self, block_ids: Sequence[int]) -> None:
        """Take blocks over that the caller holds for it; the table is empty before. Those in front may be gone."""
        assert not self.block_ids
        self.block_ids = list(block_ids)
        self.num_gone = self.block_ids.count(GONE)

    def try_grow(self, num_tokens: int) -> bool:
        """Cover ``num_tokens`` positions; False and nothing changed when the pool has too few blocks."""
        added = self._pool.try_allocate(self.missing_blocks(num_tokens))
        if added is None:
            return False
        self.block_ids += added
        return True

    def release_before(self, position: int) -> None:
        """Give back the blocks that hold nothing from ``position`` on."""
        unseen = range(self.num_gone, position // self._pool.block_size)
        for index in unseen:
            self._pool.release([self.block_ids[index]])
            self.block_ids[index] = GONE
        self.num_gone += len(unseen)

    def release(self) -> None:
        """Give everything back, the end first: the beginning of a text is the likeliest to be wanted again."""
        self._pool.release(reversed(self.held))
        self.block_ids = []
        self.num_gone = 0
