"""Replaces the linear layers of a loaded model: by quantized ones, or by ones with reproducible bits.

Embeddings and head are never quantized: they decide single tokens and suffer most. Nor are the routers of mixtures of
experts, and gates of one output. GPT-2's transposed ``Conv1D`` becomes a linear layer first, so every mode works for it too.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from accelerate.hooks import add_hook_to_module
from torch import nn
from transformers.pytorch_utils import Conv1D

from common.domain import Quantization
from worker.model.errors import ModelRefused
from worker.model.experts import MakeLinear, replace_experts
from worker.model.four_bit_linear import FourBitLinear
from worker.model.int8_linear import Int8Linear
from worker.model.quiet_bitsandbytes import bitsandbytes
from worker.model.tiled_linear import EXACT_TILES, Tile, TiledLinear


@dataclass(frozen=True, slots=True)
class PlainLayers:
    """How layers that are not quantized are computed: on a CPU tiled, where ``is_exact`` wants the same bits in every batch."""

    dtype: torch.dtype
    is_exact: bool = True

    def tile(self, weight: torch.Tensor) -> Tile | None:
        """Bounds of the products of a layer, if it needs them."""
        return EXACT_TILES[self.dtype] if self.is_exact and weight.device.type == "cpu" else None

    def __call__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        """The layer of ``weight`` [out, in]."""
        tile = self.tile(weight)
        if tile is not None:
            return TiledLinear(weight, bias, tile)
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        made.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            made.bias = nn.Parameter(bias, requires_grad=False)
        return made


def replace_linears(
    model: Any, how: Quantization, *, double_quant: bool, plain: PlainLayers
) -> None:
    """Quantize ``model`` in place and cast all other parameters to the dtype of ``plain``.

    On a CPU, products that stay in float32 are tiled, and so is the head in any dtype: with int8 weights, whose
    products are exact anyway, all of the model then gives the same bits in every batch.
    """
    replacement = _replacement(how, double_quant, plain)
    for parent, name, layer in linears(model):
        weight, bias = weight_and_bias(layer)
        _put(parent, name, (plain if len(weight) == 1 else replacement)(weight, bias))
    _finish(model, plain, replacement)


def adopt_linears(model: Any, *, plain: PlainLayers) -> None:
    """Take over what a quantized checkpoint holds, in place: the same layers as if it had been quantized just now.

    Raises:
        ModelRefused: the head is quantized too, or a layer's shape is one that is not computed right.
    """
    bnb = bitsandbytes().nn
    if isinstance(model.get_output_embeddings(), (bnb.Linear8bitLt, bnb.Linear4bit)):
        raise ModelRefused(f"{type(model).__name__}: a head that is quantized is not supported")
    for parent, name, layer in linears(model):
        made: nn.Module
        if isinstance(layer, bnb.Linear8bitLt):
            bias = None if layer.bias is None else layer.bias.data
            made = Int8Linear.from_stored(layer.weight.data, layer.weight.SCB, bias)
        elif isinstance(layer, bnb.Linear4bit):
            made = FourBitLinear.from_stored(name, layer, compute_dtype=plain.dtype)
        else:  # one that was to be left as it is
            made = plain(*weight_and_bias(layer))
        _put(parent, name, made)
    _finish(model, plain, plain)


def _finish(model: Any, plain: PlainLayers, for_experts: MakeLinear) -> None:
    replace_experts(model, for_experts, plain.tile)
    _cast(model, plain.dtype)
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear) and plain.tile(head.weight) is not None:
        made = plain(head.weight, head.bias)
        _keep_hook(head, made)
        model.set_output_embeddings(made)


def _put(parent: nn.Module, name: str, made: nn.Module) -> None:
    _keep_hook(getattr(parent, name), made)
    setattr(parent, name, made)


def _keep_hook(former: nn.Module, made: nn.Module) -> None:
    """What brings a layer its inputs, where a model is spread over devices."""
    hook = getattr(former, "_hf_hook", None)
    if hook is not None:
        add_hook_to_module(made, hook)


def _replacement(how: Quantization, double_quant: bool, plain: PlainLayers) -> MakeLinear:
    match how:
        case Quantization.INT8:
            return Int8Linear.from_weight
        case Quantization.NF4 | Quantization.FP4:
            return lambda weight, bias: FourBitLinear.from_weight(
                weight, bias, how, double_quant=double_quant, compute_dtype=plain.dtype
            )
    # In 16 bits nothing else of the model is exact.
    return replace(plain, is_exact=plain.is_exact and plain.dtype is torch.float32)


def linears(model: Any) -> list[tuple[nn.Module, str, nn.Module]]:
    """Each linear layer but the head, with its parent and its name there."""
    head = model.get_output_embeddings()
    return [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if isinstance(child, nn.Linear | Conv1D) and child is not head
    ]


def weight_and_bias(linear: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Of a linear layer, as [out, in]."""
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, torch.Tensor)
    data = weight.data.t() if isinstance(linear, Conv1D) else weight.data
    return data.contiguous(), bias.data if isinstance(bias, torch.Tensor) else None


def _cast(model: Any, dtype: torch.dtype) -> None:
    """Cast parameters that hold plain numbers; buffers, such as rotary frequencies, keep their precision."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            parameter.data = parameter.data.to(dtype)
