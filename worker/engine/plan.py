"""Which tokens the next step computes: decodes, then prefill chunks under one budget, of which a long prompt gets a small share.

A prompt of thousands of tokens must freeze neither the streams that run nor the short prompts behind it:

    decodes          1 token each
    first prompt     a share, so that the oldest advances in every step
    short prompts    whole, oldest first: those that a share covers
    other prompts    a share each
    what is left     to the prompts, oldest first, where nobody decodes

A share is at most ``max_share`` tokens at the beginning of a text, and fewer further on, where a token costs more. All
prompts together get what takes ``costs.MAX_WAIT_S``, and no less than two shares: one for the oldest, one for short
prompts behind it. Only a prompt that is alone and ends with the step gets more: whoever decodes, is computed beside it or
comes while it is computed waits for the step's end.

A prompt that takes long (``costs.LONG_S``) gets less beside others that do not: the tokens that take what the decodes of
the step take anyway, or one decode where there are none. So a step takes at most twice as long as without it, and it
takes at most about twice as long as alone. Others who come every now and then are others too: who has to wait for a
step's end is not here yet. Where there are only long ones a step keeps to ``costs.MAX_WAIT_S``, whatever a share takes.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Keys
from dataclasses import dataclass

from worker.engine.budget import StepBudget
from worker.engine.costs import MIN_CHUNK_TOKENS, StepCosts
from worker.engine.runner import Row
from worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Share:
    """One sequence's part of a step: its next ``num_tokens`` pending tokens, and ``guesses`` behind the last one."""

    sequence: Sequence
    num_tokens: int
    guesses: Keys[int] = ()

    @property
    def num_needed(self) -> int:
        """Tokens that its blocks must cover."""
        return self.sequence.num_known + len(self.guesses)

    @property
    def row(self) -> Row:
        """The part as the runner sees it; it draws when it leaves nothing pending."""
        sequence = self.sequence
        start, end = sequence.num_computed, sequence.num_computed + self.num_tokens
        return Row(
            token_ids=sequence.token_ids[start:end],
            start=start,
            block_ids=sequence.blocks.block_ids,
            draw=sequence.draw_behind(end) if end == sequence.num_known else None,
            targets=sequence.targets(start, end),
            num_top=sequence.job.output.top_logprobs,
            guesses=self.guesses,
            later_draws=[
                draw
                for num_known, _ in enumerate(self.guesses, end + 1)
                if (draw := sequence.draw_behind(num_known)) is not None
            ],
        )


def plan_shares(
    sequences: Iterable[Sequence],
    budget: StepBudget,
    costs: StepCosts,
    *,
    max_share: int,
    expects_others: bool = False,
) -> list[Share]:
    """The next step's shares of ``sequences``, which come oldest first and have blocks for all that is ready."""
    granted: dict[Sequence, int] = {}
    prefilling: list[Sequence] = []
    for sequence in sequences:
        if sequence.is_decoding:
            granted[sequence] = budget.take(1)
        else:
            prefilling.append(sequence)
    num_decodes = len(granted)
    long_ones = {s for s in prefilling if costs.is_long(s.num_found, s.num_known)}
    has_others = expects_others or num_decodes > 0 or len(long_ones) < len(prefilling)
    bounded = long_ones if has_others else set()
    shares = {s: costs.chunk_tokens(max_share, s.num_computed) for s in prefilling}
    for sequence in bounded:
        most = costs.tokens_beside(num_decodes, sequence.num_computed)
        shares[sequence] = min(shares[sequence], most)
    is_alone = len(prefilling) == 1 and not num_decodes and not long_ones
    if not (is_alone and prefilling[0].num_pending <= budget.left):
        start = 0 if has_others else max((s.num_computed for s in prefilling), default=0)
        least = 2 * max_share if has_others else MIN_CHUNK_TOKENS
        budget.keep(costs.prompt_tokens(least, budget.left, start))
    for sequence in _by_turn(prefilling, shares):
        granted[sequence] = budget.take(min(sequence.num_ready, shares[sequence]))
    if not num_decodes:
        _fill_up([s for s in prefilling if s not in bounded], granted, budget)
    return [Share(sequence, num_tokens) for sequence, num_tokens in granted.items() if num_tokens]


def _fill_up(prefilling: list[Sequence], granted: dict[Sequence, int], budget: StepBudget) -> None:
    for sequence in prefilling:
        granted[sequence] += budget.take(sequence.num_ready - granted[sequence])


def _by_turn(prefilling: list[Sequence], shares: dict[Sequence, int]) -> list[Sequence]:
    """The oldest, then the short ones, then the others; oldest first among equals."""
    others = prefilling[1:]
    short = [s for s in others if s.num_pending <= shares[s]]
    return [*prefilling[:1], *short, *(s for s in others if s.num_pending > shares[s])]
