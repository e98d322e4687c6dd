"""Attention over the paged cache, registered with transformers so that any decoder using its interface can run.

The step's layout travels as a keyword through the model's forward to every layer; a model that drops it on the
way cannot run and says so. transformers builds no mask for an implementation without a mask function, so masks
come from the layout alone.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from worker.kv.cache import LayerShape
from worker.model.errors import ModelRefused
from worker.model.layout import MIN_ROWS, StepLayout

PAGED = "headrace_paged"
DISCOVER = "headrace_discover"


@dataclass(frozen=True, slots=True)
class FoundLayers:
    """What was seen of the layers, by their index. No mapping itself: what spreads a model over devices copies those."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types for it
def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    scaling: float | None = None,
    headrace_step: StepLayout | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Write the step's keys and values, then let every row attend to its own past.

    Shapes are transformers': [1, heads, tokens, dim] in, [1, tokens, heads, dim] out.
    """
    assert headrace_step is not None
    step, cache = headrace_step, headrace_step.cache
    layer: int = module.layer_idx  # type: ignore[assignment]  # nn.Module types every attribute as Tensor | Module
    cache.write(layer, step.slots(query.device), key[0].transpose(0, 1), value[0].transpose(0, 1))
    plan = step.plan(cache.layers[layer].window, query.device)
    heads = query[0].transpose(0, 1)  # [tokens, heads, dim]
    out = query.new_zeros(heads.shape[0], heads.shape[1], value.shape[-1])
    for group in plan.one_token:
        keys, values = cache.read(layer, group.slots)
        rows = heads.index_select(0, group.token_index)
        out.index_copy_(0, group.token_index, _attend_one(rows, keys, values, group.mask, scaling))
    for chunk in plan.chunks:
        keys, values = cache.read(layer, chunk.slots)
        rows = heads[chunk.first : chunk.last]
        out[chunk.first : chunk.last] = _attend_chunk(rows, keys, values, chunk.mask, scaling)
    return out.unsqueeze(0), None


def _attend_one(
    query: torch.Tensor,  # [rows, heads, dim]
    keys: torch.Tensor,  # [rows, length, kv heads, dim]
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """Heads that share a key head become queries of that head, so that keys are never repeated."""
    rows, num_heads, dim = query.shape
    packed = query.view(rows, keys.shape[2], -1, dim)
    group = packed.shape[2]
    packed = pad(packed, (0, 0, 0, max(0, MIN_ROWS - group)))
    out = scaled_dot_product_attention(
        packed,
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=mask.expand(-1, -1, packed.shape[2], -1),
        scale=scaling,
    )
    return out[:, :, :group].reshape(rows, num_heads, -1)


def _attend_chunk(
    query: torch.Tensor,  # [tokens, heads, dim]
    keys: torch.Tensor,  # [length, kv heads, dim]
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """Tokens of one row; key heads are repeated by a view."""
    tokens, num_heads, dim = query.shape
    kv_heads, padded = keys.shape[1], mask.shape[2]
    query = pad(query, (0, 0, 0, 0, 0, padded - tokens))
    grouped = query.view(padded, kv_heads, -1, dim).permute(
        1, 2, 0, 3
    )  # [kv heads, group, tokens, dim]
    group = grouped.shape[1]
    out = scaled_dot_product_attention(
        grouped,
        keys.permute(1, 0, 2).unsqueeze(1).expand(-1, group, -1, -1),
        values.permute(1, 0, 2).unsqueeze(1).expand(-1, group, -1, -1),
        attn_mask=mask,
        scale=scaling,
    )
    return out.permute(2, 0, 1, 3)[:tokens].reshape(tokens, num_heads, -1)


def discover_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    scaling: float | None = None,
    headrace_layers: FoundLayers | None = None,
    sliding_window: int | None = None,
    **extras: Any,
) -> tuple[torch.Tensor, None]:
    """Plain causal attention over one sequence that notes every layer's shape.

    Raises:
        ModelRefused: the layer asks for what paged attention does not do.
    """
    name = type(module).__name__
    if headrace_layers is None:
        raise ModelRefused(f"{name}: the model does not hand keywords on to its attention layers")
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or layer in headrace_layers.shapes:
        raise ModelRefused(f"{name}: layers share keys and values or carry no index of their own")
    for extra in ("softcap", "s_aux", "position_bias"):
        if extras.get(extra) is not None:
            raise ModelRefused(f"{name}: attention with {extra} is not supported")
    headrace_layers.shapes[layer] = LayerShape(
        key.shape[1], key.shape[-1], value.shape[-1], sliding_window or None, query.device
    )
    group = query.shape[1] // key.shape[1]
    out = scaled_dot_product_attention(
        query,
        key.repeat_interleave(group, dim=1),
        value.repeat_interleave(group, dim=1),
        is_causal=True,
        scale=scaling,
    )
    return out.transpose(1, 2), None


def register() -> None:
    """Make both known to transformers; registering again changes nothing."""
    AttentionInterface.register(PAGED, paged_attention)
    AttentionInterface.register(DISCOVER, discover_attention)
