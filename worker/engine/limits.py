"""What an engine may do at once, and who fits into that."""

from dataclasses import dataclass

from common.kv_need import blocks_needed, may_roll
from worker.engine.group import SequenceGroup
from worker.kv.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of a step and of a text.

    ``max_share_tokens`` bounds one prompt's part of a step while others run or wait. A cached block that nobody wanted
    for ``cache_ttl_s`` is given up. Contents of at most ``swap_blocks`` blocks are kept in host memory for groups that made
    room; a group that waits longer than ``park_s`` to go on is given back, since another worker may have room. No layer
    looks further back than ``window_tokens``, itself included; 0 where one sees everything. Of the share ``quality_sample`` of the
    requests it is told how good their answers look.
    """

    max_seqs: int
    max_batch_tokens: int
    max_share_tokens: int
    context_tokens: int
    eos_token_ids: frozenset[int]
    prefix_cache: bool = True
    cache_ttl_s: float = float("inf")
    swap_blocks: int = 0
    park_s: float = float("inf")
    window_tokens: int = 0
    quality_sample: float = 0.0

    def __post_init__(self) -> None:
        # Every running sequence must find room to decode in every step.
        assert 0 < self.max_seqs <= self.max_batch_tokens, self
        assert self.max_share_tokens > 0, self

    def fits_alone(self, group: SequenceGroup, pool: BlockPool) -> bool:
        """Whether the group can run to its end when nobody else is there."""
        num_prompt, choices = len(group.job.prompt_token_ids), group.sequences
        longest = max((s.max_known for s in choices), default=0) - num_prompt
        return (
            0 < num_prompt <= self.context_tokens
            and len(choices) <= self.max_seqs
            and (
                self._has_room(num_prompt, longest, len(choices), pool)
                or may_roll(len(choices), pool.num_blocks, pool.block_size, self.window_tokens)
            )
        )

    def roll_tokens(
        self, num_prompt: int, max_generated: int, num_choices: int, pool: BlockPool
    ) -> int:
        """Tokens that are computed at a time of a text that is too long for the pool and rolls; 0 for one that does not."""
        fits = self._has_room(num_prompt, max_generated, num_choices, pool)
        rolls = may_roll(num_choices, pool.num_blocks, pool.block_size, self.window_tokens)
        return self.window_tokens if rolls and not fits else 0

    def _has_room(self, num_prompt: int, longest: int, num_choices: int, pool: BlockPool) -> bool:
        needed = blocks_needed(num_prompt, longest, num_choices, pool.block_size)
        return needed <= pool.num_blocks
