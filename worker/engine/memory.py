"""Who gets which blocks: finds known prefixes, shares prompts among choices, publishes what is proven, frees behind windows.

A block is written only by the one sequence that holds it: what is shared is full and computed, or about to be computed by
the sequence that the others follow. What enters the prefix cache is proven first: the token drawn behind it was sound.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from common.kv_need import shared_blocks
from worker.engine.block_store import BlockStore
from worker.engine.group import SequenceGroup
from worker.engine.lower_tier import LowerTier
from worker.engine.report import CacheReport
from worker.engine.saved_blocks import SavedBlocks
from worker.engine.sequence import Sequence
from worker.kv.block_table import GONE
from worker.kv.blocks import BlockPool
from worker.kv.prefix_cache import PrefixCache

MAX_LOADS = 64
"""Blocks that one request may bring up from below at once: reading them takes the step's time."""


@dataclass(slots=True)
class PrefixCounts:
    """Tokens that were looked for in the prefix cache, tokens found, and blocks that came from below it."""

    queried_tokens: int = 0
    hit_tokens: int = 0
    loaded_blocks: int = 0


class KvMemory:
    """The blocks of an engine; nothing else allocates from ``pool``."""

    def __init__(
        self,
        pool: BlockPool,
        cache: PrefixCache,
        store: BlockStore,
        lower: LowerTier | None = None,
        window_tokens: int = 0,
    ) -> None:
        """Over a pool in which everything is free; what leaves the cache goes to ``lower``.

        A token sees ``window_tokens`` back, itself included; 0 for all.
        """
        self._window_tokens = window_tokens
        self.pool = pool
        self.cache = cache
        self._store = store
        self._lower = lower
        if lower is not None:
            cache.on_evict = lambda key, block_id: lower.save(key, store.read(block_id))
        self._counts = PrefixCounts()

    def try_seat(self, group: SequenceGroup, reserve_blocks: int) -> bool:
        """Blocks for all known tokens of all choices, or none: False and nothing changed.

        ``reserve_blocks`` stay free beside them.
        """
        if not group.live:  # it ended while it waited, and only has to be told
            return True
        found = [self._find(sequence) for sequence in group.live]
        revived = {b for blocks in found for b in blocks if not self.pool.is_held(b)}
        num_shared = group.num_shared_blocks(self.pool.block_size)
        num_new = sum(
            self.pool.blocks_for(sequence.num_to_cover) - max(len(blocks), num_shared if i else 0)
            for i, (sequence, blocks) in enumerate(zip(group.live, found, strict=True))
        )
        if num_new + len(revived) + reserve_blocks > self.pool.num_free:
            return False
        # Everything found is held before anything is allocated, which may overwrite what nobody holds.
        for blocks in found:
            self.cache.revive(blocks)
        for sequence, blocks in zip(group.live, found, strict=True):
            self._begin(sequence, blocks, group.live[0], num_shared)
            grown = sequence.blocks.try_grow(sequence.num_to_cover)
            assert grown, sequence.num_known
            if sequence.follows is None:
                self._load(sequence)
        self._count(group)
        return True

    def try_grow(self, group: SequenceGroup) -> bool:
        """Cover every token that is ready; False when the pool has too few blocks for all of them."""
        return all(sequence.blocks.try_grow(sequence.num_to_cover) for sequence in group.live)

    def fork(self, group: SequenceGroup) -> None:
        """Let followers go on by themselves whose prompt is computed."""
        for sequence in group.live:
            leader = sequence.follows
            if leader is None:
                continue
            wanted = _prompt_to_share(sequence)
            if leader.num_computed < wanted:
                continue
            first_own = shared_blocks(len(group.job.prompt_token_ids), self.pool.block_size)
            for index in range(first_own, self.pool.blocks_for(wanted)):
                self._store.copy(leader.blocks.block_ids[index], sequence.blocks.block_ids[index])
            sequence.num_computed = wanted
            sequence.follows = None

    def give_back_unseen(self, group: SequenceGroup) -> None:
        """Free what lies before the window of every token to come.

        Not while a prompt is computed: its blocks are published behind its end, and followers copy the last of them. A text
        that rolls has neither.
        """
        if not self._window_tokens:
            return
        for sequence in group.live:
            if sequence.roll_tokens or (sequence.is_decoding and sequence.num_generated):
                sequence.blocks.release_before(sequence.num_computed + 1 - self._window_tokens)

    def save(self, group: SequenceGroup) -> None:
        """Copy what the group's blocks hold to host memory, and free the blocks."""
        tables = {s.index: list(s.blocks.block_ids) for s in group.live}
        held = dict.fromkeys(block_id for s in group.live for block_id in s.blocks.held)
        contents = {block_id: self._store.read(block_id) for block_id in held}
        group.saved = SavedBlocks(contents, tables)
        group.release()

    def drop(self, group: SequenceGroup) -> None:
        """Free the group's blocks; what they held is to be computed again, as far as it is not found."""
        group.release()
        for sequence in group.sequences:
            sequence.forget_computed()

    def try_restore(self, group: SequenceGroup, reserve_blocks: int) -> bool:
        """Put back what was saved, in other blocks, and cover every known token; False and nothing changed without room."""
        saved = group.saved
        assert saved is not None
        live = group.live
        num_more = sum(
            max(0, self.pool.blocks_for(s.num_to_cover) - len(saved.tables[s.index])) for s in live
        )
        if len(saved) + num_more + reserve_blocks > self.pool.num_free:
            return False
        blocks = self.pool.try_allocate(len(saved))
        assert blocks is not None
        moved = dict(zip(saved.contents, blocks, strict=True))
        for old, new in moved.items():
            self._store.write(new, saved.contents[old])
        for sequence in live:
            sequence.blocks.begin_with(
                [moved.get(old, GONE) for old in saved.tables[sequence.index]]
            )
            self.pool.share(sequence.blocks.held)
            sequence.num_published = 0
        self.pool.release(blocks)  # each is held by the sequences now
        for sequence in live:
            grown = sequence.blocks.try_grow(sequence.num_to_cover)
            assert grown, sequence.num_known
        group.saved = None
        return True

    def publish(self, sequence: Sequence) -> None:
        """What it has computed is proven: full blocks can be found from now on."""
        if sequence.num_computed // self.pool.block_size <= sequence.num_published:
            return  # most steps fill no block
        keys = sequence.keys(sequence.num_computed)
        for index in range(max(sequence.num_published, sequence.blocks.num_gone), len(keys)):
            self.cache.publish(keys[index], sequence.blocks.block_ids[index])
            sequence.num_published = index + 1

    def distrust(self, sequence: Sequence) -> None:
        """Its row failed: nothing that it computed or looked at is found any more."""
        self.cache.withdraw(sequence.blocks.held)

    def report(self) -> CacheReport:
        """What became of the prefix cache since the last call."""
        changes, counts = self.cache.take_changes(), self._counts
        self._counts = PrefixCounts()
        return CacheReport(
            tuple(changes.added),
            tuple(changes.evicted),
            tuple(changes.lifetimes_s),
            counts.queried_tokens,
            counts.hit_tokens,
            counts.loaded_blocks,
        )

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Assert that these sequences hold exactly the blocks that are not free, and that the index is sound."""
        everybody = list(sequences)
        self.pool.check_integrity(s.blocks.held for s in everybody)
        self.cache.check_integrity()
        for sequence in everybody:
            assert sequence.num_computed <= sequence.blocks.capacity_tokens
            first = sequence.num_computed // self.pool.block_size
            writable = sequence.blocks.block_ids[first:] if sequence.follows is None else []
            followers = [s for s in everybody if s.follows is sequence]
            for block_id in writable:
                assert not self.pool.is_shared(block_id) or followers, block_id
                assert not self.cache.is_published(block_id), block_id

    def _find(self, sequence: Sequence) -> list[int]:
        # What is found computed cannot be scored, and the last token is always computed: the next is drawn from it.
        if sequence.job.scores_prompt:
            return []
        return self.cache.longest(sequence.keys(sequence.num_known - 1))

    def _begin(
        self, sequence: Sequence, found: list[int], first: Sequence, num_shared: int
    ) -> None:
        num_found = len(found) * self.pool.block_size
        if sequence is first or num_found >= _prompt_to_share(sequence):
            sequence.blocks.begin_with(found)
            sequence.num_computed = sequence.num_found = num_found
            sequence.num_published = len(found)
            return
        # What it found of its own is the beginning of what the first holds.
        self.pool.release(found)
        shared = first.blocks.block_ids[:num_shared]
        self.pool.share(shared)
        sequence.blocks.begin_with(shared)
        sequence.follows = first

    def _load(self, sequence: Sequence) -> None:
        """Fill the blocks behind what was found from below, as far as they are there, and not too many at once."""
        if self._lower is None or sequence.job.scores_prompt:
            return
        first = len_found = sequence.num_computed // self.pool.block_size
        keys = sequence.keys(sequence.num_known - 1)
        for index, key in enumerate(keys[first : first + MAX_LOADS], first):
            content = self._lower.load(key)
            if content is None:
                break
            block_id = sequence.blocks.block_ids[index]
            self._store.write(block_id, content)
            self.cache.publish(key, block_id)
            len_found = index + 1
        self._counts.loaded_blocks += len_found - first
        sequence.num_computed = sequence.num_found = len_found * self.pool.block_size
        sequence.num_published = len_found

    def _count(self, group: SequenceGroup) -> None:
        if group.cached_tokens is not None or group.job.prefix_root is None:
            group.cached_tokens = group.cached_tokens or 0
            return
        num_prompt = len(group.job.prompt_token_ids)
        group.cached_tokens = min(group.live[0].num_computed, num_prompt)
        self._counts.queried_tokens += num_prompt
        self._counts.hit_tokens += group.cached_tokens


def _prompt_to_share(sequence: Sequence) -> int:
    """Tokens of the prompt that a choice need not compute: all, but for the one that it draws its next token from."""
    return min(len(sequence.job.prompt_token_ids), sequence.num_known - 1)
