"""Which tokens a row may draw: each filter keeps what reaches a threshold of the row.

A threshold is a value, not a rank: tokens of equal probability stay or go together, so the result depends neither
on how a sort breaks ties nor on the rest of the batch.

Weights are e to the power of (logit - largest logit) / temperature: the likeliest token's is 1, a hidden one's 0.
Logits and weights are [rows, blocks, SIZE], see ``worker.sampling.blocks``; what filters ask for is [rows].
"""

import torch

from worker.sampling.blocks import largest, reaching, taken, totals

LEAST_EXPONENT = -80.0
"""Weights below are 0: no random number of 53 bits ever meets them, and numbers that small are slow to compute with."""
_TRIALS = ((64, 256), (256, 4096))
"""Blocks and tokens among which a nucleus nearly always ends; looking there first spares sorting the vocabulary."""


def weights(logits: torch.Tensor, peaks: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """The weights; works in place. No temperature, however small, overflows: the exponents are 0 and below."""
    divisors = temperature.to(logits.dtype).clamp_min(torch.finfo(logits.dtype).tiny)
    scaled = logits.sub_(peaks.view(-1, 1, 1)).div_(divisors.view(-1, 1, 1))
    return torch.threshold_(scaled.clamp_min_(LEAST_EXPONENT - 1).exp_(), 1.8e-35, 0.0)


def candidates(summits: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Numbers of the blocks in which the ``top_k`` largest of each row stand, and all that equal the last of them.

    Every ``top_k`` is at least 1 and at most the number of blocks.
    """
    ranked = largest(summits, int(top_k.max()))
    return reaching(summits, ranked.gather(-1, top_k.unsqueeze(-1) - 1))


def keep_top_k(logits: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Hide, in place, what is smaller than the ``top_k``-th largest of its row."""
    ranked = largest(logits.flatten(1), int(top_k.max()))
    ranks = top_k.clamp_max(ranked.shape[-1]).unsqueeze(-1) - 1
    thresholds = ranked.gather(-1, ranks)
    return logits.masked_fill_(logits < thresholds.unsqueeze(-1), float("-inf"))


def nucleus_edges(found: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The smallest weight of each row [rows, 1] in the smallest set whose share of the mass reaches ``top_p``; 0 for 1."""
    edges = found.new_zeros(len(found), 1)
    wanted = totals(found)[:, -1] * top_p
    open_rows = (top_p < 1).nonzero().squeeze(-1)
    for num_blocks, num_tokens in _TRIALS:
        if open_rows.numel() == 0:
            return edges
        edge, is_reached = _trial(found, open_rows, wanted[open_rows], num_blocks, num_tokens)
        edges[open_rows[is_reached]] = edge[is_reached]
        open_rows = open_rows[~is_reached]
    if open_rows.numel():
        everything = found[open_rows].flatten(1)
        ordered = largest(everything, everything.shape[-1])
        edges[open_rows] = _edge(ordered, wanted[open_rows])[0]
    return edges


def _trial(
    found: torch.Tensor, rows: torch.Tensor, wanted: torch.Tensor, num_blocks: int, num_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """``_edge`` of some rows among the largest weights of the blocks with the largest weights."""
    summits = found.amax(dim=-1)[rows]
    bounds = largest(summits, num_blocks)[:, -1:]
    best = taken(found, rows, reaching(summits, bounds), 0.0).flatten(1)
    ordered = largest(best, num_tokens)
    # Below the bound other blocks have values too.
    return _edge(ordered.masked_fill_(ordered < bounds, 0.0), wanted)


def _edge(ordered: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest weight [rows, 1] inside the set of mass ``wanted``, and whether ``ordered`` goes down that far.

    At least the largest is inside, even where nothing is wanted.
    """
    mass = ordered.cumsum(dim=-1, dtype=torch.float64)
    outside = (mass < wanted.unsqueeze(-1)).sum(dim=-1, keepdim=True)
    last = ordered.shape[-1] - 1
    edge = ordered.gather(-1, outside.clamp_max(last))
    return edge, (outside.squeeze(-1) <= last) & (edge.squeeze(-1) > 0)


def above(found: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The blocks of each row that have a weight of at least its edge [rows, 1], less all others: numbers and weights."""
    numbers = reaching(found.amax(dim=-1), edges)
    rows = torch.arange(len(found), device=found.device)
    kept = taken(found, rows, numbers, 0.0)
    return numbers, kept.masked_fill_(kept < edges.unsqueeze(-1), 0.0)


def keep_typical(found: torch.Tensor, typical_p: torch.Tensor) -> torch.Tensor:
    """Zero, in place, what is outside the set nearest to the row's entropy whose mass reaches ``typical_p``."""
    mass = totals(found)[:, -1].to(found.dtype).view(-1, 1, 1)
    logs = (found / mass).log_()
    entropy = -totals((found / mass * logs).nan_to_num_(0.0))[:, -1].to(found.dtype)
    strangeness = logs.add_(entropy.view(-1, 1, 1)).abs_()
    limits = _typical_limits(found / mass, strangeness, typical_p)
    return found.masked_fill_(strangeness > limits.unsqueeze(-1), 0.0)


def _typical_limits(
    shares: torch.Tensor, strangeness: torch.Tensor, typical_p: torch.Tensor
) -> torch.Tensor:
    ordered, order = strangeness.flatten(1).sort(dim=-1, stable=True)
    mass = shares.flatten(1).gather(-1, order).cumsum(dim=-1, dtype=torch.float64)
    inside = (mass < typical_p.unsqueeze(-1)).sum(dim=-1, keepdim=True)
    return ordered.gather(-1, inside.clamp_max(ordered.shape[-1] - 1))
