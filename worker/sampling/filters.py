"""Which tokens a row may draw: each filter keeps what reaches a threshold of the row.

A threshold is a value, not a rank: tokens of equal probability stay or go together, so the result depends neither
on how a sort breaks ties nor on the rest of the batch. (min-p and typical sampling are thresholds too: they join
here.)
"""

import torch

_NUCLEUS_TRIAL = 256
"""A nucleus is nearly always smaller than this; looking there first spares sorting the whole vocabulary."""


def scale(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Logits over temperature, shifted so that each row's largest is 0: no temperature, however small, overflows.

    ``logits`` [rows, vocabulary], ``temperature`` [rows], all above 0.
    """
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    tiny = torch.finfo(logits.dtype).tiny
    return shifted.div_(temperature.to(logits.dtype).clamp_min(tiny).unsqueeze(-1))


def keep_top_k(scaled: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Hide what is smaller than the k-th largest of its row; ``top_k`` [rows], 0 for rows without the filter."""
    limit = min(int(top_k.max()), scaled.shape[-1])
    if limit == 0:
        return scaled
    rows = top_k.nonzero().squeeze(-1)
    largest = scaled[rows].topk(limit, dim=-1).values
    rank = top_k[rows].clamp_max(limit).sub(1).unsqueeze(-1)
    thresholds = scaled.new_full((scaled.shape[0], 1), float("-inf"))
    thresholds[rows] = largest.gather(-1, rank)
    return scaled.masked_fill(scaled < thresholds, float("-inf"))


def keep_top_p(probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero what lies outside the smallest set whose mass reaches ``top_p`` [rows]; 1 for rows without the filter."""
    rows = (top_p < 1).nonzero().squeeze(-1)
    if rows.numel() == 0:
        return probs
    thresholds = probs.new_zeros(probs.shape[0], 1)
    trial = min(_NUCLEUS_TRIAL, probs.shape[-1])
    found, reached = _nucleus(probs[rows].topk(trial, dim=-1).values, top_p[rows])
    thresholds[rows[reached]] = found[reached]
    wide = rows[~reached]
    if wide.numel() > 0:
        ordered = probs[wide].sort(dim=-1, descending=True).values
        thresholds[wide] = _nucleus(ordered, top_p[wide])[0]
    return probs.masked_fill(probs < thresholds, 0.0)


def _nucleus(ordered: torch.Tensor, top_p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest probability inside each row's nucleus, and whether ``ordered`` goes down that far.

    At least the largest is inside, even with ``top_p`` 0.
    """
    mass = ordered.cumsum(dim=-1, dtype=torch.float64)
    inside = (mass < top_p.to(torch.float64).unsqueeze(-1)).sum(dim=-1, keepdim=True)
    last = ordered.shape[-1] - 1
    return ordered.gather(-1, inside.clamp_max(last)), inside.squeeze(-1) <= last
