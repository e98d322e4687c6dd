"""Log probabilities: what a model thought of a token, before anything that the request changes about its logits."""

from collections.abc import Sequence

import torch

from worker.engine.runner import TokenScores
from worker.sampling.blocks import SIZE, cut, largest, reaching, taken, totals
from worker.sampling.filters import LEAST_EXPONENT


def scores(
    logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenScores]:
    """Of each row of ``logits`` [rows, vocabulary] its token's log probability, and the ``num_top`` likeliest.

    Equally likely ones come in the order of their ids. A row's scores do not depend on the other rows.
    """
    if not token_ids:
        return []
    logits = logits.float()
    blocks = cut(logits)
    summits = blocks.amax(dim=-1)
    peaks = summits.amax(dim=-1, keepdim=True)
    exponents = (blocks - peaks.unsqueeze(-1)).clamp_min_(LEAST_EXPONENT)
    norms = peaks.double() + totals(exponents.exp_())[:, -1:].log()
    chosen = logits.gather(-1, torch.tensor(token_ids, device=logits.device).unsqueeze(-1))
    logprobs = (chosen.double() - norms).squeeze(-1).tolist()
    tops = _tops(blocks, summits, norms, num_top)
    return [TokenScores(logprob, top) for logprob, top in zip(logprobs, tops, strict=True)]


def _tops(
    blocks: torch.Tensor, summits: torch.Tensor, norms: torch.Tensor, num_top: Sequence[int]
) -> list[tuple[tuple[int, float], ...]]:
    tops: list[tuple[tuple[int, float], ...]] = []
    for row, count in enumerate(num_top):
        if not count:
            tops.append(())
            continue
        bounds = largest(summits[row : row + 1], count)[:, -1:]
        numbers = reaching(summits[row : row + 1], bounds)
        found = taken(blocks, torch.tensor([row], device=blocks.device), numbers, float("-inf"))
        least = largest(found.flatten(1), count)[0, -1]
        places = (found.flatten() >= least).nonzero().squeeze(-1)
        token_ids = numbers[0][places // SIZE] * SIZE + places % SIZE
        values = (found.flatten()[places].double() - norms[row]).tolist()
        pairs = zip(token_ids.tolist(), values, strict=True)
        tops.append(tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]))
    return tops
