"""What both model runners make of logits: drawn tokens, and the scores of prompts that are asked for.

A row that wants its prompt scored needs logits behind each of its tokens. So that a long chunk does not bring logits of
hundreds of tokens at once, all but its last piece is computed before the step that everybody shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import torch

from worker.engine.runner import (
    Draw,
    Drawn,
    Row,
    RowFailed,
    RowResult,
    Scored,
    TokenScores,
    checked,
)
from worker.sampling.sampler import DrawTokens, sample

MOST_SCORED = 64
"""Tokens whose logits are held at once for one row."""

LogitsAfter = Callable[[Sequence[Row], Sequence[int]], torch.Tensor]
"""Computes rows; logits behind the tokens of the flat batch that stand at these places."""


def run_rows(
    rows: Sequence[Row], logits_after: LogitsAfter, draw_tokens: DrawTokens
) -> list[RowResult]:
    """The results of a step; see ``worker.engine.runner.ModelRunner``."""
    early: dict[int, list[TokenScores]] = {}
    shared = list(rows)
    for index, row in enumerate(rows):
        while len(row.targets) > MOST_SCORED:
            piece, row = _split(row)
            found = logits_after([piece], range(MOST_SCORED))
            early.setdefault(index, []).extend(_target_scores(piece, found, draw_tokens))
        shared[index] = row
    return _run_shared(shared, logits_after, draw_tokens, early)


def _run_shared(
    rows: Sequence[Row],
    logits_after: LogitsAfter,
    draw_tokens: DrawTokens,
    early: dict[int, list[TokenScores]],
) -> list[RowResult]:
    places: list[int] = []
    draws: list[Draw] = []
    first = 0
    # Of each row: where its logits begin, where its draws' do, and where they end.
    lines: list[tuple[int, int, int]] = []
    for row in rows:
        begin, last = len(places), first + len(row.token_ids) - 1
        places += range(first, first + len(row.targets))
        middle = len(places)
        if row.draw is not None:
            places += range(last, last + 1 + len(row.guesses))
            draws += [row.draw, *row.later_draws]
        lines.append((begin, middle, len(places)))
        first = last + 1 + len(row.guesses)
    logits = logits_after([_with_guesses(row) for row in rows], places)
    for row, (_, middle, end) in zip(rows, lines, strict=True):
        if row.inject_nan and middle < end:
            logits[middle] = float("nan")
    scored = {
        index: (
            *early.get(index, ()),
            *_target_scores(row, logits[slice(*lines[index][:2])], draw_tokens),
        )
        for index, row in enumerate(rows)
        if row.targets
    }
    if scored:
        logits = logits[[line for _, *drawing in lines for line in range(*drawing)]]
    found = iter(sample(logits, draws, draw_tokens))
    results: list[RowResult] = [None] * len(rows)
    for index, (row, (_, middle, end)) in enumerate(zip(rows, lines, strict=True)):
        if middle < end:
            results[index] = checked(list(islice(found, end - middle)), row.guesses)
    for index, scores_of_row in scored.items():
        drawn = results[index]
        if not isinstance(drawn, RowFailed):
            assert drawn is None or isinstance(drawn, Drawn), drawn
            results[index] = Scored(scores_of_row, drawn)
    return results


def _with_guesses(row: Row) -> Row:
    return replace(row, token_ids=[*row.token_ids, *row.guesses]) if row.guesses else row


def _target_scores(row: Row, logits: torch.Tensor, draw_tokens: DrawTokens) -> list[TokenScores]:
    return draw_tokens.scores(logits, row.targets, [row.num_top] * len(row.targets))


def _split(row: Row) -> tuple[Row, Row]:
    """The first ``MOST_SCORED`` tokens of a row, and the rest."""
    head = replace(
        row, token_ids=row.token_ids[:MOST_SCORED], targets=row.targets[:MOST_SCORED], draw=None
    )
    rest = replace(
        row,
        token_ids=row.token_ids[MOST_SCORED:],
        targets=row.targets[MOST_SCORED:],
        start=row.start + MOST_SCORED,
    )
    return head, rest
