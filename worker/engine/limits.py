"""What an engine may do at once, and who fits into that."""

from dataclasses import dataclass

from worker.engine.group import SequenceGroup
from worker.kv.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of a step and of a text.

    ``max_share_tokens`` bounds one prompt's part of a step while others run or wait.
    """

    max_seqs: int
    max_batch_tokens: int
    max_share_tokens: int
    context_tokens: int
    eos_token_ids: frozenset[int]

    def __post_init__(self) -> None:
        # Every running sequence must find room to decode in every step.
        assert 0 < self.max_seqs <= self.max_batch_tokens, self
        assert self.max_share_tokens > 0, self

    def fits_alone(self, group: SequenceGroup, pool: BlockPool) -> bool:
        """Whether the group can run to its end when nobody else is there."""
        blocks = sum(pool.blocks_for(sequence.max_known) for sequence in group.sequences)
        return (
            0 < len(group.job.prompt_token_ids) <= self.context_tokens
            and len(group.sequences) <= self.max_seqs
            and blocks <= pool.num_blocks
        )

    def fits_now(self, group: SequenceGroup, num_running: int, pool: BlockPool) -> bool:
        """Whether there are slots for the group, and blocks for all its known tokens."""
        return (
            num_running + len(group.live) <= self.max_seqs
            and group.missing_blocks <= pool.num_free
        )
