"""What both model runners make of logits: drawn tokens, and the scores of prompts that are asked for.

A row that wants its prompt scored needs logits behind each of its tokens. So that a long chunk does not bring logits of
hundreds of tokens at once, all but its last piece is computed before the step that everybody shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from worker.engine.runner import Row, RowFailed, RowResult, Scored, TokenScores
from worker.sampling.sampler import DrawTokens, sample
from worker.sampling.scores import scores

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
            early.setdefault(index, []).extend(_target_scores(piece, found))
        shared[index] = row
    return _run_shared(shared, logits_after, draw_tokens, early)


def _run_shared(
    rows: Sequence[Row],
    logits_after: LogitsAfter,
    draw_tokens: DrawTokens,
    early: dict[int, list[TokenScores]],
) -> list[RowResult]:
    places: list[int] = []
    drawing: list[int] = []
    first = 0
    # Of each row: where its logits begin, and where its draw's are.
    lines: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        begin = len(places)
        places += range(first, first + len(row.targets))
        first += len(row.token_ids)
        lines.append((begin, len(places)))
        if row.draw is not None:
            places.append(first - 1)
            drawing.append(index)
    logits = logits_after(rows, places)
    for index in drawing:
        if rows[index].inject_nan:
            logits[lines[index][1]] = float("nan")
    results: list[RowResult] = [None] * len(rows)
    scored = {
        index: Scored((*early.get(index, ()), *_target_scores(row, logits[slice(*lines[index])])))
        for index, row in enumerate(rows)
        if row.targets
    }
    draws = [draw for row in rows if (draw := row.draw) is not None]
    if scored:
        logits = logits[[lines[index][1] for index in drawing]]
    for index, drawn in zip(drawing, sample(logits, draws, draw_tokens), strict=True):
        results[index] = drawn
    for index, result in scored.items():
        drawn_too = results[index]
        if not isinstance(drawn_too, RowFailed):
            assert not isinstance(drawn_too, Scored)
            results[index] = replace(result, drawn=drawn_too)
    return results


def _target_scores(row: Row, logits: torch.Tensor) -> list[TokenScores]:
    return scores(logits, row.targets, [row.num_top] * len(row.targets))


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
