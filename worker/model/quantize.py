"""Replaces the linear layers of a loaded model: by quantized ones, or by ones with reproducible bits.

Embeddings and head are never quantized: they decide single tokens and suffer most. Nor are the routers of mixtures of
experts, and gates of one output. GPT-2's transposed ``Conv1D`` becomes a linear layer first, so every mode works for it too.
"""

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from common.domain import Quantization
from worker.model.errors import ModelRefused
from worker.model.experts import MakeLinear, replace_experts
from worker.model.four_bit_linear import FourBitLinear
from worker.model.int8_linear import Int8Linear
from worker.model.quiet_bitsandbytes import bitsandbytes
from worker.model.tiled_linear import EXACT_TILES, TiledLinear


def replace_linears(
    model: Any, how: Quantization, *, double_quant: bool, dtype: torch.dtype
) -> None:
    """Quantize ``model`` in place and cast all other parameters to ``dtype``.

    On a CPU, products that stay in float32 are tiled, and so is the head in any dtype: with int8 weights, whose
    products are exact anyway, all of the model then gives the same bits in every batch.
    """
    on_cpu = _is_on_cpu(model)
    plain = _plain(dtype, on_cpu)
    replacement = _replacement(how, double_quant, dtype, on_cpu)
    if replacement is not None:
        for parent, name, layer in linears(model):
            weight, bias = weight_and_bias(layer)
            setattr(parent, name, (plain if len(weight) == 1 else replacement)(weight, bias))
    _finish(model, dtype, on_cpu, replacement or plain)


def adopt_linears(model: Any, *, dtype: torch.dtype) -> None:
    """Take over what a quantized checkpoint holds, in place: the same layers as if it had been quantized just now.

    Raises:
        ModelRefused: the head is quantized too, or a layer's shape is one that is not computed right.
    """
    on_cpu = _is_on_cpu(model)
    bnb = bitsandbytes().nn
    if isinstance(model.get_output_embeddings(), (bnb.Linear8bitLt, bnb.Linear4bit)):
        raise ModelRefused(f"{type(model).__name__}: a head that is quantized is not supported")
    for parent, name, layer in linears(model):
        made: nn.Module
        if isinstance(layer, bnb.Linear8bitLt):
            bias = None if layer.bias is None else layer.bias.data
            made = Int8Linear.from_stored(layer.weight.data, layer.weight.SCB, bias)
        elif isinstance(layer, bnb.Linear4bit):
            made = FourBitLinear.from_stored(name, layer, compute_dtype=dtype)
        elif on_cpu:  # one that was to be left as it is
            made = TiledLinear(*weight_and_bias(layer), EXACT_TILES[dtype])
        else:
            continue
        setattr(parent, name, made)
    _finish(model, dtype, on_cpu, _plain(dtype, on_cpu))


def _is_on_cpu(model: Any) -> bool:
    return bool(model.get_input_embeddings().weight.device.type == "cpu")


def _finish(model: Any, dtype: torch.dtype, on_cpu: bool, for_experts: MakeLinear) -> None:
    replace_experts(model, for_experts, EXACT_TILES[dtype] if on_cpu else None)
    _cast(model, dtype)
    head = model.get_output_embeddings()
    if on_cpu and isinstance(head, nn.Linear):
        model.set_output_embeddings(TiledLinear(head.weight, head.bias, EXACT_TILES[dtype]))


def _replacement(
    how: Quantization, double_quant: bool, dtype: torch.dtype, on_cpu: bool
) -> MakeLinear | None:
    match how:
        case Quantization.INT8:
            return Int8Linear.from_weight
        case Quantization.NF4 | Quantization.FP4:
            return lambda weight, bias: FourBitLinear.from_weight(
                weight, bias, how, double_quant=double_quant, compute_dtype=dtype
            )
        case Quantization.NONE if on_cpu and dtype is torch.float32:
            return _plain(dtype, on_cpu)
    return None


def _plain(dtype: torch.dtype, on_cpu: bool) -> MakeLinear:
    """What is not quantized: tiled where that gives the same bits in every batch."""
    if on_cpu:
        return lambda weight, bias: TiledLinear(weight, bias, EXACT_TILES[dtype])
    return _linear


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


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
