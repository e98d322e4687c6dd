"""The prefix index over the pool: whatever happens, what is found holds what was published."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.prefix_keys import short_hash
from tests.support.fake_clock import FakeClock
from worker.kv.blocks import BlockPool
from worker.kv.prefix_cache import PrefixCache

TTL_S = 10.0


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


class CacheMachine(RuleBasedStateMachine):
    """Sequences that hold, publish, distrust and leave blocks in any order; a listener follows the changes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.pool = BlockPool(num_blocks=8, block_size=4)
        self.cache = PrefixCache(self.pool, TTL_S)
        self.content: dict[int, int] = {}
        self.held: list[list[int]] = []
        self.told: set[int] = set()
        self.saved: list[tuple[bytes, int]] = []
        self.cache.on_evict = lambda key, block_id: self.saved.append((key, block_id))

    @rule(count=st.integers(1, 4), contents=st.lists(st.integers(0, 11), min_size=4, max_size=4))
    def compute(self, count: int, contents: list[int]) -> None:
        """New blocks with new contents, published at once."""
        self.saved.clear()
        before = dict(self.content)
        blocks = self.pool.try_allocate(count)
        if blocks is None:
            return
        for saved_key, block_id in self.saved:  # its content was still there
            assert saved_key == key(before[block_id])
        for block_id, content in zip(blocks, contents, strict=False):
            assert not self.cache.is_published(block_id)
            self.content[block_id] = content
            self.cache.publish(key(content), block_id)
        self.held.append(blocks)

    @rule(wanted=st.lists(st.integers(0, 11), min_size=1, max_size=4))
    def find(self, wanted: list[int]) -> None:
        """What is found holds what was asked for, and can be held."""
        found = self.cache.longest(key(number) for number in wanted)
        assert [self.content[block_id] for block_id in found] == wanted[: len(found)]
        self.cache.revive(found)
        self.held.append(found)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def distrust(self, data: st.DataObject) -> None:
        blocks = data.draw(st.sampled_from(self.held))
        self.cache.withdraw(blocks)
        assert not any(map(self.cache.is_published, blocks))

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.cache.expire(self.clock())

    @rule()
    def listen(self) -> None:
        changes = self.cache.take_changes()
        self.told.difference_update(changes.evicted)
        self.told.update(changes.added)
        published = {self.content[b] for b in range(8) if self.cache.is_published(b)}
        assert self.told == {short_hash(key(number)) for number in published}

    @rule()
    def listen_anew(self) -> None:
        self.told.clear()
        self.cache.tell_everything()
        self.listen()

    @invariant()
    def balanced(self) -> None:
        self.pool.check_integrity(self.held)
        self.cache.check_integrity()


TestCache = CacheMachine.TestCase


def filled() -> tuple[BlockPool, PrefixCache]:
    """Three blocks, published as 0, 1, 2 and released in that order."""
    pool = BlockPool(num_blocks=3, block_size=1)
    cache = PrefixCache(pool, TTL_S)
    blocks = pool.try_allocate(3)
    assert blocks is not None
    for number, block_id in enumerate(blocks):
        cache.publish(key(number), block_id)
        pool.release([block_id])
    return pool, cache


def test_least_recently_released_goes_first() -> None:
    """And what was found meanwhile counts as used."""
    pool, cache = filled()
    found = cache.longest([key(0)])
    cache.revive(found)
    pool.release(found)
    pool.try_allocate(1)
    assert [bool(cache.longest([key(n)])) for n in range(3)] == [True, False, True]


def test_blank_blocks_go_before_kept_ones() -> None:
    """Nothing is evicted while there is a block that holds nothing."""
    pool, cache = filled()
    cache.withdraw([2])
    assert pool.try_allocate(1) == [2]
    assert len(cache) == 2


def test_time_to_live_counts_from_the_release() -> None:
    """A block that somebody held for long is kept as long behind it as any other."""
    pool, cache = filled()
    cache.expire(0.0)
    held = cache.longest([key(0)])
    cache.revive(held)
    cache.expire(TTL_S)
    assert [bool(cache.longest([key(n)])) for n in range(3)] == [True, False, False]
    pool.release(held)
    cache.expire(TTL_S + 1)
    cache.expire(2 * TTL_S)
    assert len(cache) == 1
    cache.expire(2 * TTL_S + 1)
    assert len(cache) == 0
    assert cache.take_changes().lifetimes_s == pytest.approx([TTL_S, TTL_S, 2 * TTL_S + 1])
