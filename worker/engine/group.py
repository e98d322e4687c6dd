"""The choices of one dispatch: admitted together, given back together."""

from common.logprobs import Logprobs
from worker.engine.job import Job
from worker.engine.sequence import Sequence


class SequenceGroup:
    """The sequences of one job that are still to be told of, in the order of their choices."""

    def __init__(self, job: Job, sequences: list[Sequence]) -> None:
        """A group none of whose sequences has begun."""
        self.job = job
        self.sequences = sequences
        self.is_prompt_told = False
        self.num_overtakes = 0

    @property
    def live(self) -> list[Sequence]:
        """Sequences that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish is None]

    @property
    def prompt_logprobs(self) -> tuple[Logprobs, ...]:
        """Of the whole prompt, once some sequence has been through it."""
        length = len(self.job.prompt_token_ids)
        for sequence in self.sequences:
            if len(sequence.prompt_logprobs) == length:
                return tuple(sequence.prompt_logprobs)
        return ()

    @property
    def has_begun(self) -> bool:
        """Whether any of it was computed."""
        return any(sequence.num_computed for sequence in self.sequences)

    @property
    def missing_blocks(self) -> int:
        """Blocks to add before every known token, and one more of each sequence, is covered."""
        return sum(
            s.blocks.missing_blocks(min(s.num_known + 1, max(s.num_known, s.max_known)))
            for s in self.live
        )

    def try_grow(self) -> bool:
        """Cover every known token; False when the pool has too few blocks for all of them."""
        return all(sequence.blocks.try_grow(sequence.num_known) for sequence in self.live)

    def release(self) -> None:
        """Free all blocks."""
        for sequence in self.sequences:
            sequence.blocks.release()
