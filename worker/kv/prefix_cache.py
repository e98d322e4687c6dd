"""Finds blocks again by what they hold: an index over the pool's blocks, by the key of their prefix.

A block is published once it is full and its content is proven, and it is found from then on, whether somebody holds it
or not. One that nobody holds goes when the pool needs it, least recently released first, or when nobody wanted it for
``ttl_s``. What came and went is told to whoever asks for ``changes``: schedulers send requests where their prefix is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from common.prefix_keys import short_hash
from worker.kv.blocks import BlockPool


@dataclass(slots=True)
class CacheChanges:
    """Short hashes of blocks that cannot be found any more since the last look, and of those that can be: in this order.

    ``lifetimes_s``: from the publication to the eviction of what was evicted.
    """

    added: dict[int, None] = field(default_factory=dict)
    evicted: list[int] = field(default_factory=list)
    lifetimes_s: list[float] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.added or self.evicted)


@dataclass(slots=True)
class _Published:
    key: bytes
    since_s: float
    idle_since_s: float | None = None


class PrefixCache:
    """The index of one pool; it hears from the pool before a block is overwritten."""

    def __init__(self, pool: BlockPool, ttl_s: float = float("inf")) -> None:
        """Nothing can be found."""
        self._pool = pool
        self._ttl_s = ttl_s
        self._blocks: dict[bytes, int] = {}
        self._published: dict[int, _Published] = {}
        self._changes = CacheChanges()
        self._now_s = 0.0
        self.on_evict: Callable[[bytes, int], None] = lambda key, block_id: None
        """Hears of a key and its block while the content is still there."""
        pool.on_overwrite = self._overwritten

    def __len__(self) -> int:
        """Blocks that can be found."""
        return len(self._blocks)

    def is_published(self, block_id: int) -> bool:
        """Whether the block can be found."""
        return block_id in self._published

    def longest(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks of the longest known beginning of a text with these keys."""
        found: list[int] = []
        for key in keys:
            block_id = self._blocks.get(key)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def publish(self, key: bytes, block_id: int) -> None:
        """A held block is full and holds the prefix; one that another block holds already is not told twice."""
        if key in self._blocks or block_id in self._published:
            return
        self._pool.keep(block_id)
        self._blocks[key] = block_id
        self._published[block_id] = _Published(key, self._now_s)
        self._changes.added[short_hash(key)] = None

    def withdraw(self, block_ids: Sequence[int]) -> None:
        """What these blocks hold is not to be trusted: nobody finds them again."""
        for block_id in block_ids:
            if block_id in self._published:
                self._forget(block_id)
                self._pool.discard(block_id)

    def clear(self) -> None:
        """Nothing can be found any more."""
        self.withdraw(list(self._published))

    def expire(self, now_s: float) -> None:
        """Note the time, and give up what nobody has held for the whole ``ttl_s``."""
        self._now_s = now_s
        idle = self._pool.idle_blocks
        # Oldest release first: those without a time yet are the last, those whose time is over are the first.
        for block_id in reversed(idle):
            if self._published[block_id].idle_since_s is not None:
                break
            self._published[block_id].idle_since_s = now_s
        while idle:
            block_id = next(iter(idle))
            since_s = self._published[block_id].idle_since_s
            if since_s is None or now_s - since_s < self._ttl_s:
                break
            self._evict(block_id)
            self._pool.discard(block_id)

    def revive(self, block_ids: Sequence[int]) -> None:
        """Hold blocks that were found."""
        for block_id in block_ids:
            self._published[block_id].idle_since_s = None
        self._pool.revive(block_ids)

    def take_changes(self) -> CacheChanges:
        """What changed since the last call."""
        changes, self._changes = self._changes, CacheChanges()
        return changes

    def tell_everything(self) -> None:
        """Somebody new listens: all that can be found counts as added."""
        self._changes = CacheChanges({short_hash(key): None for key in self._blocks})

    @property
    def has_news(self) -> bool:
        """Whether ``take_changes`` would tell anything."""
        return bool(self._changes)

    def check_integrity(self) -> None:
        """Assert that every key has its block, and that idle blocks are exactly those that can be found."""
        assert {block: entry.key for block, entry in self._published.items()} == {
            block: key for key, block in self._blocks.items()
        }
        for block_id in self._pool.idle_blocks:
            assert block_id in self._published, block_id
        for block_id in self._published:
            assert self._pool.is_held(block_id) or block_id in self._pool.idle_blocks, block_id

    def _overwritten(self, block_id: int) -> None:
        self._evict(block_id)

    def _evict(self, block_id: int) -> None:
        published = self._published[block_id]
        self.on_evict(published.key, block_id)
        self._changes.lifetimes_s.append(self._now_s - published.since_s)
        self._forget(block_id)

    def _forget(self, block_id: int) -> None:
        published = self._published.pop(block_id)
        del self._blocks[published.key]
        changes, told = self._changes, short_hash(published.key)
        if told in changes.added:
            del changes.added[told]
        else:
            changes.evicted.append(told)
