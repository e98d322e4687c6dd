"""The books of KV memory: which fixed-size blocks are free and how often each of the others is held.

    blank    nobody holds them, nothing in them is worth keeping       taken first
    kept     nobody holds them, their content may be wanted again      taken next, oldest release first
    held     once or more: a count above one means shared, and a writer has to copy first

A kept block can be held again as it is (``revive``). Whoever keeps contents hears before one is given away.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable


def _nobody_listens(_: int) -> None:
    pass


class BlockPool:
    """Hands out block numbers ``0 .. num_blocks - 1``; all or nothing, never twice."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """A pool in which everything is free and blank."""
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.on_overwrite: Callable[[int], None] = _nobody_listens
        """Hears of each kept block that is about to be given to a new holder."""
        self._ref_counts = [0] * num_blocks
        self._is_kept = [False] * num_blocks
        self._blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that an allocation may take."""
        return len(self._blank) + len(self._kept)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - self.num_free

    @property
    def idle_blocks(self) -> OrderedDict[int, None]:
        """Kept blocks that nobody holds, oldest release first."""
        return self._kept

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` consecutive positions from 0 on need."""
        return -(-num_tokens // self.block_size)

    def is_held(self, block_id: int) -> bool:
        """Whether somebody holds the block."""
        return self._ref_counts[block_id] > 0

    def try_allocate(self, count: int) -> list[int] | None:
        """``count`` blocks held once each, or None and nothing changed when there are fewer."""
        if count > self.num_free:
            return None
        taken = [self._take() for _ in range(count)]
        for block_id in taken:
            assert self._ref_counts[block_id] == 0, block_id
            self._ref_counts[block_id] = 1
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold blocks once more that are held already."""
        for block_id in block_ids:
            assert self._ref_counts[block_id] > 0, block_id
            self._ref_counts[block_id] += 1

    def revive(self, block_ids: Iterable[int]) -> None:
        """Hold blocks once more that are held or kept."""
        for block_id in block_ids:
            assert self._is_kept[block_id] or self._ref_counts[block_id], block_id
            self._kept.pop(block_id, None)
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
                (self._kept if self._is_kept[block_id] else self._blank)[block_id] = None

    def keep(self, block_id: int) -> None:
        """The content of a held block is worth keeping once nobody holds it."""
        assert self._ref_counts[block_id] > 0, block_id
        self._is_kept[block_id] = True

    def discard(self, block_id: int) -> None:
        """The content of a kept block is worth nothing any more."""
        assert self._is_kept[block_id], block_id
        self._is_kept[block_id] = False
        if self._ref_counts[block_id] == 0:
            del self._kept[block_id]
            self._blank[block_id] = None

    def _take(self) -> int:
        if self._blank:
            return self._blank.popitem(last=False)[0]
        block_id = next(iter(self._kept))
        self.on_overwrite(block_id)
        del self._kept[block_id]
        self._is_kept[block_id] = False
        return block_id

    def check_integrity(self, tables: Iterable[Iterable[int]] | None = None) -> None:
        """Assert that the books balance; with ``tables``, also that exactly these hold the blocks."""
        blank, kept = set(self._blank), set(self._kept)
        unheld = {block_id for block_id, count in enumerate(self._ref_counts) if count == 0}
        assert not blank & kept, blank & kept
        assert blank | kept == unheld, (blank | kept) ^ unheld
        assert kept == {b for b in unheld if self._is_kept[b]}
        assert all(count >= 0 for count in self._ref_counts)
        if tables is None:
            return
        held = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                held[block_id] += 1
        assert held == self._ref_counts, (held, self._ref_counts)
