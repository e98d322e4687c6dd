"""The books of KV memory."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.kv.block_table import BlockTable
from worker.kv.blocks import BlockPool


class PoolMachine(RuleBasedStateMachine):
    """Any order of growing, sharing and releasing leaves the books balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(num_blocks=12, block_size=4)
        self.tables: list[BlockTable] = []
        self.shares: list[list[int]] = []

    @rule(num_tokens=st.integers(0, 30))
    def begin(self, num_tokens: int) -> None:
        table = BlockTable(self.pool)
        self.grow(table, num_tokens)
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), num_tokens=st.integers(0, 60))
    def grow_one(self, data: st.DataObject, num_tokens: int) -> None:
        self.grow(data.draw(st.sampled_from(self.tables)), num_tokens)

    def grow(self, table: BlockTable, num_tokens: int) -> None:
        before, free = list(table.block_ids), self.pool.num_free
        missing = table.missing_blocks(num_tokens)
        if table.try_grow(num_tokens):
            assert table.capacity_tokens >= num_tokens
            assert self.pool.num_free == free - missing
        else:
            assert missing > free
            assert (table.block_ids, self.pool.num_free) == (before, free)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), position=st.integers(-5, 60))
    def release_before(self, data: st.DataObject, position: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        position = min(position, table.capacity_tokens)
        whole = table.held
        table.release_before(position)
        assert table.num_gone >= position // 4
        assert table.block_ids == [-1] * table.num_gone + table.held
        assert whole[len(whole) - len(table.held) :] == table.held

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block_ids = list(data.draw(st.sampled_from(self.tables)).held)
        self.pool.share(block_ids)
        self.shares.append(block_ids)
        assert all(map(self.pool.is_shared, block_ids))

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def unshare(self, data: st.DataObject) -> None:
        self.pool.release(self.shares.pop(data.draw(st.integers(0, len(self.shares) - 1))))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))).release()

    @invariant()
    def balanced(self) -> None:
        self.pool.check_integrity([*(t.held for t in self.tables), *self.shares])


TestPool = PoolMachine.TestCase


def test_free_blocks_are_taken_in_the_order_of_their_release() -> None:
    """A released block is overwritten as late as possible."""
    pool = BlockPool(num_blocks=3, block_size=1)
    assert pool.try_allocate(3) == [0, 1, 2]
    pool.release([1])
    pool.release([0])
    assert pool.try_allocate(1) == [1]


def test_releasing_what_is_free_is_a_bug() -> None:
    """Nobody can give back what nobody holds."""
    with pytest.raises(AssertionError):
        BlockPool(num_blocks=1, block_size=1).release([0])
