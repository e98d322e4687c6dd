"""From logits to tokens, for a whole batch at once, without rows seeing one another.

logits [rows, vocabulary]
  1 check     a row with NaN or infinity fails here, alone
  2 keep      rows whose log probabilities are wanted, as they are: those are the model's own. They are copied where what
              follows would change any
  3 adjust    logit bias, penalties, forbidden tokens, grammars
  4 draw      temperature 0 takes the largest; else temperature, top-k, top-p, min-p, typical and one uniform number a
              row, by (seed, choice, position); a row that may draw nothing fails here, alone

What reads whole rows is done by kernels where there are kernels (``kernel_draw``), else by torch (``torch_draw``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from worker.engine.runner import DEAD_END, NUMERIC, Draw, Drawn, RowFailed, TokenScores
from worker.sampling.adjust import adjust, is_adjusted
from worker.sampling.torch_draw import draw_by_torch


class DrawTokens(Protocol):
    """Whoever reads whole rows of logits: steps 1 and 4, and the log probabilities of what was kept."""

    @property
    def only_reads(self) -> bool:
        """Whether the logits are as before."""
        ...

    def broken_rows(self, logits: torch.Tensor) -> list[int]:
        """Rows with NaN or an infinity."""
        ...

    def __call__(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
        """A token for each row of adjusted logits; -1 where all of a row are -inf."""
        ...

    def scores(
        self, logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
    ) -> list[TokenScores]:
        """Of each row its token's log probability and the ``num_top`` likeliest, see ``scores``."""
        ...


def sample(
    logits: torch.Tensor, draws: Sequence[Draw], draw_tokens: DrawTokens = draw_by_torch
) -> list[Drawn | RowFailed]:
    """A token for each row of ``logits`` [rows, vocabulary], as its ``draws`` entry asks. Works in place."""
    assert logits.shape[0] == len(draws)
    if not draws:
        return []
    logits = logits.float()
    broken = draw_tokens.broken_rows(logits)
    if broken:
        # What a broken row holds must not matter: it goes on as zeros and its token is thrown away.
        logits[broken] = 0.0
    changes = any(map(is_adjusted, draws))
    raw = _wanted(logits, draws, may_share=draw_tokens.only_reads and not changes)
    if changes:
        adjust(logits, draws)
    drawn = draw_tokens(logits, draws)
    stuck = [row for row, token in enumerate(drawn) if token < 0]
    failed = {row: RowFailed(DEAD_END, _why_stuck(draws[row])) for row in stuck}
    failed |= {row: RowFailed(NUMERIC, "the model's output is not a number") for row in broken}
    # A row that failed has no token; any will do in its place.
    chosen = [max(drawn[row], 0) for row in raw.rows]
    found = draw_tokens.scores(raw.logits, chosen, raw.num_top)
    of_row = dict(zip(raw.rows, found, strict=True))
    return [failed.get(row) or Drawn(token, of_row.get(row)) for row, token in enumerate(drawn)]


def _why_stuck(draw: Draw) -> str:
    assert draw.constraint is not None
    why = draw.constraint.failure or "no token of the vocabulary may follow"
    return f"the output cannot go on as its constraint demands: {why}"


@dataclass(frozen=True, slots=True)
class _Raw:
    """Rows whose log probabilities are wanted, as the model gave them."""

    rows: list[int]
    logits: torch.Tensor
    num_top: list[int]


def _wanted(logits: torch.Tensor, draws: Sequence[Draw], *, may_share: bool) -> _Raw:
    pairs = [(row, draw.num_top) for row, draw in enumerate(draws) if draw.num_top is not None]
    rows = [row for row, _ in pairs]
    num_top = [count for _, count in pairs]
    # With no rows at all there is nothing to copy, and most steps are such.
    if not rows or (may_share and len(rows) == len(draws)):
        return _Raw(rows, logits, num_top)
    return _Raw(rows, logits[rows], num_top)
