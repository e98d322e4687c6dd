"""The choices of one dispatch: admitted together, pre-empted together, given back together.

    prompt blocks   [ P0 ][ P1 ]                       shared by all choices
    first choice                [ P2 . g g ][ g g …    computes the prompt
    each follower               [ P2 . h h ][ h …      its block of the prompt's end is copied when the first is through

A follower computes nothing until the choice that it follows has computed the prompt; then it computes the prompt's last
token for itself and draws its own first token from that.
"""

from typing import TYPE_CHECKING

from common.kv_need import shared_blocks
from common.logprobs import Logprobs
from worker.engine.job import Job
from worker.engine.sequence import Sequence

if TYPE_CHECKING:
    from worker.engine.saved_blocks import SavedBlocks


class SequenceGroup:
    """The sequences of one job that are still to be told of, in the order of their choices."""

    def __init__(self, job: Job, sequences: list[Sequence], number: int = 0) -> None:
        """A group none of whose sequences has begun; ``number`` rises with every group, so it says who is older."""
        self.job = job
        self.sequences = sequences
        self.number = number
        self.is_prompt_told = False
        self.num_overtakes = 0
        self.cached_tokens: int | None = None
        self.saved: SavedBlocks | None = None
        self.parked_since_s: float | None = None

    @property
    def live(self) -> list[Sequence]:
        """Sequences that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish is None]

    @property
    def working(self) -> list[Sequence]:
        """Sequences that have something to compute now."""
        return [s for s in self.sequences if s.finish is None and s.follows is None]

    @property
    def prompt_logprobs(self) -> tuple[Logprobs, ...]:
        """Of the whole prompt, once some sequence has been through it."""
        length = len(self.job.prompt_token_ids)
        for sequence in self.sequences:
            if len(sequence.prompt_logprobs) == length:
                return tuple(sequence.prompt_logprobs)
        return ()

    @property
    def num_computed(self) -> int:
        """Tokens computed for it, each shared one once; all that would be lost with its blocks."""
        num_prompt = len(self.job.prompt_token_ids)
        computed = [sequence.num_computed for sequence in self.live]
        shared = min(num_prompt, max(computed, default=0))
        return shared + sum(max(0, count - num_prompt) for count in computed)

    @property
    def has_begun(self) -> bool:
        """Whether any of it was computed here, or found computed."""
        return any(sequence.num_computed for sequence in self.sequences)

    def num_shared_blocks(self, block_size: int) -> int:
        """Blocks of the prompt that several live sequences hold together."""
        several = len(self.live) > 1
        return shared_blocks(len(self.job.prompt_token_ids), block_size) if several else 0

    def missing_blocks(self, block_size: int, ahead_tokens: int = 1) -> int:
        """Blocks to add before every known token, and so many more of each sequence, are covered."""
        live, shared = self.live, self.num_shared_blocks(block_size)
        held = any(sequence.blocks.block_ids for sequence in live)
        num_missing = sum(
            s.blocks.missing_blocks(
                # What comes takes the place of what is given back, where a text rolls.
                s.num_to_cover
                if s.roll_tokens
                else min(s.num_known + ahead_tokens, max(s.num_known, s.max_known))
            )
            for s in live
        )
        return num_missing - (0 if held else shared * (len(live) - 1))

    def release(self) -> None:
        """Free all blocks."""
        for sequence in self.sequences:
            sequence.blocks.release()
