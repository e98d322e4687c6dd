"""Log probabilities in plain torch (kernels: ``kernel_draw``): what a model thought of a token, before anything that the request changes about its logits."""

from collections.abc import Sequence

import torch

from worker.engine.runner import TokenScores
from worker.sampling.blocks import SIZE, cut, largest, reaching, taken, totals
from worker.sampling.filters import LEAST_EXPONENT

_ROWS_IN_CACHE = 4
"""Of a vocabulary of 50,000: on a CPU so many rows are done with before others are fetched."""


def scores(
    logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenScores]:
    """Of each row of ``logits`` [rows, vocabulary] its token's log probability, and the ``num_top`` likeliest.

    Equally likely ones come in the order of their ids. A row's scores do not depend on the other rows.
    """
    if not token_ids:
        return []
    num_top = [min(count, logits.shape[-1]) for count in num_top]
    # Looking for the likeliest is many small operations, which all rows share.
    in_parts = logits.device.type == "cpu" and not any(num_top)
    at_once = _ROWS_IN_CACHE if in_parts else len(token_ids)
    found: list[TokenScores] = []
    for first in range(0, len(token_ids), at_once):
        part = slice(first, first + at_once)
        found += _scores(logits[part].float(), token_ids[part], num_top[part])
    return found


def _scores(
    logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenScores]:
    blocks = cut(logits)
    summits = blocks.amax(dim=-1)
    peaks = summits.amax(dim=-1, keepdim=True)
    exponents = (blocks - peaks.unsqueeze(-1)).clamp_min_(LEAST_EXPONENT)
    norms = peaks.double() + totals(exponents.exp_())[:, -1:].log()
    chosen = logits.gather(-1, torch.tensor(list(token_ids), device=logits.device).unsqueeze(-1))
    logprobs = (chosen.double() - norms).squeeze(-1).tolist()
    tops = _tops(blocks, summits, norms, num_top)
    return [TokenScores(logprob, top) for logprob, top in zip(logprobs, tops, strict=True)]


def _tops(
    blocks: torch.Tensor, summits: torch.Tensor, norms: torch.Tensor, num_top: Sequence[int]
) -> list[tuple[tuple[int, float], ...]]:
    """The likeliest of each row: all rows look for as many as the most that one wants, and each keeps its own number."""
    tops: list[tuple[tuple[int, float], ...]] = [() for _ in num_top]
    asking = [row for row, count in enumerate(num_top) if count]
    if not asking:
        return tops
    most, wanted = max(num_top), torch.tensor(asking, device=blocks.device)
    numbers = reaching(summits[wanted], largest(summits[wanted], most)[:, -1:])
    found = taken(blocks, wanted, numbers, float("-inf")).flatten(1)
    reaches = found >= largest(found, most)[:, -1:]
    reaches &= (numbers >= 0).repeat_interleave(SIZE, dim=1)
    lines, places = reaches.nonzero(as_tuple=True)
    token_ids = numbers[lines, places // SIZE] * SIZE + places % SIZE
    values = found[lines, places].double() - norms[wanted].squeeze(-1)[lines]
    pairs: list[list[tuple[int, float]]] = [[] for _ in asking]
    for line, token_id, value in zip(
        lines.tolist(), token_ids.tolist(), values.tolist(), strict=True
    ):
        pairs[line].append((token_id, value))
    for row, candidates in zip(asking, pairs, strict=True):
        candidates.sort(key=lambda pair: (-pair[1], pair[0]))
        tops[row] = tuple(candidates[: num_top[row]])
    return tops
