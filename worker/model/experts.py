"""Mixtures of experts: each expert's products as linear layers, so that they are quantized and tiled like all others.

transformers keeps the experts of a layer in two tensors, which no replacement of linear layers would see, and sums what a
token gets in an order that may depend on its batch. Here every expert computes the tokens that were routed to it, and
a token's parts are added in the order in which its router ranked them.

    hidden [tokens, in] ──▶ router ──▶ experts [tokens, k], weights [tokens, k]
    for each expert that somebody chose:   its tokens ──▶ up ──▶ gate ──▶ down ──▶ parts [tokens, k, in]
    weights · parts, k added one after the other
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from worker.model.errors import ModelRefused
from worker.model.tiled_linear import Tile

MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], nn.Module]
TileOf = Callable[[torch.Tensor], Tile | None]


class Experts(nn.Module):
    """The experts of one layer, as transformers calls them: hidden states, chosen experts, their weights."""

    def __init__(self, source: Any, make_linear: MakeLinear) -> None:
        """Takes the weights out of ``source``, which is left with its activation alone.

        Raises:
            ModelRefused: its experts are of a form that is not covered.
        """
        super().__init__()
        name = type(source).__name__
        if not source.has_gate or source.has_post_expert_norm:
            raise ModelRefused(f"{name}: experts without a gate, or with a norm, are not covered")
        self.up = _layers(source, "gate_up_proj", make_linear)
        self.down = _layers(source, "down_proj", make_linear)
        self.source = source

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types for it
    def forward(
        self,
        hidden_states: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
    ) -> torch.Tensor:
        """[tokens, in], [tokens, k], [tokens, k] to [tokens, in]."""
        parts = hidden_states.new_zeros(*top_k_index.shape, hidden_states.shape[-1])
        for expert in sorted(set(top_k_index.flatten().tolist())):
            tokens, ranks = torch.where(top_k_index == expert)
            inner = self.source._apply_gate(self.up[expert](hidden_states[tokens]))
            weights = top_k_weights[tokens, ranks, None]
            parts[tokens, ranks] = (self.down[expert](inner) * weights).to(parts.dtype)
        total = parts[:, 0]
        for rank in range(1, parts.shape[1]):
            total = total + parts[:, rank]
        return total


class TiledRouter(nn.Module):
    """A router that sees as many tokens at a time as its product needs to give a token the same bits in every batch."""

    def __init__(self, source: nn.Module, tile: Tile) -> None:
        """``source`` takes [tokens, in] and gives tensors whose first dimension is the tokens."""
        super().__init__()
        self.source = source
        self._tile = tile

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[tokens, in] to whatever the router says of each token."""
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        missing = self._tile.least - rows.shape[0]
        if missing > 0:
            return tuple(part[:-missing] for part in self.source(pad(rows, (0, 0, 0, missing))))
        parts = rows.tensor_split(-(-rows.shape[0] // self._tile.most))
        said = [self.source(part) for part in parts]
        return tuple(torch.cat(same) for same in zip(*said, strict=True))


def has_experts(model: Any) -> bool:
    """Whether some layer is a mixture of experts."""
    return next(_mixtures(model), None) is not None


def replace_experts(model: Any, make_linear: MakeLinear, tile_of: TileOf) -> None:
    """Let each mixture of ``model`` compute as this module says; routers keep their numbers, tiled where a tile is given.

    Raises:
        ModelRefused: its experts are of a form that is not covered.
    """
    for parent, name, source in list(_mixtures(model)):
        setattr(parent, name, Experts(source, make_linear))
        for beside, router in _children(parent):
            if beside == name or not _is_router(router):
                continue
            tile = tile_of(router.weight)
            if tile is not None:
                setattr(parent, beside, TiledRouter(router, tile))


def _children(parent: nn.Module) -> list[tuple[str, Any]]:
    """A copy, so that they may be replaced meanwhile."""
    return list(parent.named_children())


def _mixtures(model: Any) -> Iterator[tuple[nn.Module, str, Any]]:
    for module in model.modules():
        for name, child in module.named_children():
            # What transformers' own interface for experts says of each module that it may replace.
            if hasattr(child, "is_concatenated") and hasattr(child, "down_proj"):
                yield module, name, child


def _is_router(module: Any) -> bool:
    """Whether it has a product of its own and is no linear layer of whatever kind: those are replaced as such."""
    weight = getattr(module, "weight", None)
    is_layer = hasattr(module, "out_features")
    return not is_layer and isinstance(weight, nn.Parameter) and weight.dim() == 2


def _layers(source: Any, name: str, make_linear: MakeLinear) -> nn.ModuleList:
    """A layer for each expert, of the tensor [experts, out, in] (or the last two swapped) of that name, which goes."""
    stacked = getattr(source, name).data
    biases = getattr(source, f"{name}_bias").data if source.has_bias else [None] * len(stacked)
    made = nn.ModuleList(
        make_linear((one.t() if source.is_transposed else one).contiguous(), bias)
        for one, bias in zip(stacked, biases, strict=True)
    )
    setattr(source, name, None)
    if source.has_bias:
        setattr(source, f"{name}_bias", None)
    return made
