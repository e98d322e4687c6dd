"""Filters and draws in plain torch: where there are no kernels, on every device, and what the kernels are held against.

A row whose top-k is small goes on with the few blocks of the vocabulary in which its k largest stand (``blocks``); which
way a row goes depends on its own parameters alone.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import torch

from common.domain import SamplingParams
from worker.engine.runner import Draw, TokenScores
from worker.sampling import filters
from worker.sampling.blocks import SIZE, cut, taken, totals
from worker.sampling.scores import scores
from worker.sampling.uniform import uniforms_of

Keep = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class TorchDraw:
    """As ``sampler.DrawTokens``."""

    only_reads = False
    """The logits are lost."""

    def broken_rows(self, logits: torch.Tensor) -> list[int]:
        """Rows with NaN or an infinity. Their sum is not finite; nor may be that of a row of huge numbers."""
        sums = logits.sum(dim=-1)
        suspects = torch.isfinite(sums).logical_not_().nonzero().squeeze(-1).tolist()
        return [row for row in suspects if not bool(torch.isfinite(logits[row]).all())]

    def __call__(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
        """A token for each row of adjusted ``logits``, which are lost; -1 where all of a row are -inf."""
        blocks = cut(logits)
        summits = blocks.amax(dim=-1)
        stuck = (summits.amax(dim=-1) == float("-inf")).nonzero().squeeze(-1)
        if stuck.numel():
            blocks[stuck], summits[stuck] = 0.0, 0.0
        tokens = _greedy(blocks, summits)
        for way, rows in _by_way(draws, summits.shape[-1]).items():
            tokens[rows] = _draw(blocks, summits, rows, draws, way)
        tokens[stuck] = -1
        drawn: list[int] = tokens.tolist()
        return drawn

    def scores(
        self, logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
    ) -> list[TokenScores]:
        """As ``worker.sampling.scores.scores``."""
        return scores(logits, token_ids, num_top)


draw_by_torch = TorchDraw()
"""It has no state."""


def _greedy(blocks: torch.Tensor, summits: torch.Tensor) -> torch.Tensor:
    """The first of each row's largest."""
    numbers = summits.argmax(dim=-1, keepdim=True)
    rows = torch.arange(len(blocks), device=blocks.device)
    inside = taken(blocks, rows, numbers, 0.0).squeeze(1).argmax(dim=-1)
    return numbers.squeeze(-1) * SIZE + inside


class _Way(Enum):
    """How much of the vocabulary a row looks at; its own parameters decide."""

    FEW = "the blocks of its top_k largest"
    NUCLEUS = "everything once, then what reaches a threshold"
    ALL = "everything"

    @classmethod
    def of(cls, params: SamplingParams, num_blocks: int) -> "_Way":
        if 0 < params.top_k <= num_blocks // 4:
            return cls.FEW
        return cls.NUCLEUS if params.top_p < 1 or params.min_p > 0 else cls.ALL


def _by_way(draws: Sequence[Draw], num_blocks: int) -> dict[_Way, list[int]]:
    ways: dict[_Way, list[int]] = {}
    for row, draw in enumerate(draws):
        if draw.params.temperature > 0:
            ways.setdefault(_Way.of(draw.params, num_blocks), []).append(row)
    return ways


def _draw(
    blocks: torch.Tensor, summits: torch.Tensor, rows: list[int], draws: Sequence[Draw], way: _Way
) -> torch.Tensor:
    """Tokens of ``rows``, all of which go the same way. What they hold in ``blocks`` is lost."""
    index = torch.tensor(rows, device=blocks.device)
    params = [draws[row].params for row in rows]
    numbers, found = _logits(blocks, summits[index], index, params, way)

    def values(name: str) -> torch.Tensor:
        wanted = [getattr(p, name) for p in params]
        return torch.tensor(wanted, dtype=torch.float64, device=blocks.device)

    found = filters.weights(found, summits[index].amax(dim=-1), values("temperature"))
    if way is not _Way.ALL:
        edges = filters.nucleus_edges(found, values("top_p"))
        edges = torch.maximum(edges, values("min_p").to(edges.dtype).unsqueeze(-1))
        kept, found = filters.above(found, edges)
        numbers = kept if numbers is None else numbers.gather(-1, kept.clamp_min(0))
    _apply(filters.keep_typical, found, values("typical_p"), 1)
    random = torch.from_numpy(uniforms_of([draws[row] for row in rows])).to(blocks.device)
    places, inside = _inverse(found, random)
    block = places if numbers is None else numbers.gather(-1, places)
    return (block * SIZE + inside).squeeze(-1)


def _logits(
    blocks: torch.Tensor,
    summits: torch.Tensor,
    index: torch.Tensor,
    params: Sequence[SamplingParams],
    way: _Way,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The rows' logits behind top-k, and of which blocks they are (None for all of them)."""
    top_k = torch.tensor([min(p.top_k, 1 << 30) for p in params], device=blocks.device)
    if way is _Way.FEW:
        numbers = filters.candidates(summits, top_k)
        found = taken(blocks, index, numbers, float("-inf"))
        return numbers, filters.keep_top_k(found, top_k)
    found = blocks if len(index) == len(blocks) else blocks[index]
    _apply(filters.keep_top_k, found, top_k, 0)
    return None, found


def _apply(keep: Keep, found: torch.Tensor, values: torch.Tensor, off: float) -> None:
    """Filter the rows of ``found`` whose value is not ``off``, in place."""
    rows = (values != off).nonzero().squeeze(-1)
    if rows.numel() == len(values):
        keep(found, values)
    elif rows.numel():
        found[rows] = keep(found[rows], values[rows])


def _inverse(found: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each row's cumulated weight passes its number: which block of ``found``, and which token inside, [rows, 1].

    Cumulated in the vocabulary's order and in float64: no sort, and a token without weight cannot be drawn.
    """
    mass = totals(found)
    target = numbers.unsqueeze(-1) * mass[:, -1:]
    places = _passing(mass, target)
    before = torch.where(places > 0, mass.gather(-1, (places - 1).clamp_min(0)), 0.0)
    rows = torch.arange(len(found), device=found.device)
    inner = taken(found, rows, places, 0.0).squeeze(1).cumsum(dim=-1, dtype=torch.float64)
    # A block's sum was rounded otherwise than its last running sum: the share counts, not the sum.
    share = (target - before) / (mass.gather(-1, places) - before)
    return places, _passing(inner, share * inner[:, -1:])


def _passing(mass: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first place behind which ``mass`` [rows, n] is more than ``target`` [rows, 1]."""
    places = torch.searchsorted(mass, target, right=True)
    # A number just below 1 times the mass may round up to the mass: the last possible place is meant.
    return torch.minimum(places, torch.searchsorted(mass, mass[:, -1:].contiguous()))
