"""The blocks of one sequence, in the order of positions."""

from collections.abc import Sequence

from worker.kv.blocks import BlockPool


class BlockTable:
    """Entry ``i`` holds positions ``i * block_size .. (i + 1) * block_size - 1``; grows at the end only."""

    def __init__(self, pool: BlockPool) -> None:
        """An empty table over ``pool``."""
        self._pool = pool
        self.block_ids: list[int] = []

    @property
    def capacity_tokens(self) -> int:
        """Positions that the blocks cover."""
        return len(self.block_ids) * self._pool.block_size

    def missing_blocks(self, num_tokens: int) -> int:
        """Blocks to add before ``num_tokens`` positions are covered."""
        return max(0, self._pool.blocks_for(num_tokens) - len(self.block_ids))

    def begin_with(self, block_ids: Sequence[int]) -> None:
        """Take blocks over that the caller holds for it; the table is empty before."""
        assert not self.block_ids
        self.block_ids = list(block_ids)

    def try_grow(self, num_tokens: int) -> bool:
        """Cover ``num_tokens`` positions; False and nothing changed when the pool has too few blocks."""
        added = self._pool.try_allocate(self.missing_blocks(num_tokens))
        if added is None:
            return False
        self.block_ids += added
        return True

    def release(self) -> None:
        """Give everything back, the end first: the beginning of a text is the likeliest to be wanted again."""
        self._pool.release(reversed(self.block_ids))
        self.block_ids = []
