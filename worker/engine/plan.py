"""Which tokens the next step computes: decodes first, then prefill chunks, under one budget.

A long prompt would take whole steps away from the short ones behind it. So prefills, oldest first, get at most
``max_share`` tokens each in a first round, and only what is left over goes to them in a second.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.engine.budget import StepBudget
from worker.engine.runner import Row
from worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Share:
    """One sequence's part of a step: its next ``num_tokens`` pending tokens."""

    sequence: Sequence
    num_tokens: int

    @property
    def row(self) -> Row:
        """The part as the runner sees it; it draws when it leaves nothing pending."""
        sequence = self.sequence
        start, end = sequence.num_computed, sequence.num_computed + self.num_tokens
        return Row(
            token_ids=sequence.token_ids[start:end],
            start=start,
            block_ids=sequence.blocks.block_ids,
            draw=sequence.next_draw if end == sequence.num_known else None,
            targets=sequence.targets(start, end),
            num_top=sequence.job.output.top_logprobs,
        )


def plan_shares(
    sequences: Iterable[Sequence], budget: StepBudget, *, max_share: int
) -> list[Share]:
    """The next step's shares of ``sequences``, which come oldest first and have blocks for all known tokens."""
    decoding: list[Sequence] = []
    prefilling: list[Sequence] = []
    for sequence in sequences:
        (decoding if sequence.is_decoding else prefilling).append(sequence)
    granted = [budget.take(1) for _ in decoding]
    first = [budget.take(min(sequence.num_pending, max_share)) for sequence in prefilling]
    granted += [
        taken + budget.take(sequence.num_pending - taken)
        for sequence, taken in zip(prefilling, first, strict=True)
    ]
    pairs = zip(decoding + prefilling, granted, strict=True)
    return [Share(sequence, num_tokens) for sequence, num_tokens in pairs if num_tokens]
