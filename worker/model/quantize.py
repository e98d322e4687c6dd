"""Replaces the linear layers of a loaded model by quantized ones.

Embeddings and head stay as they are: they decide single tokens and suffer most. GPT-2's transposed ``Conv1D``
becomes a linear layer first, so every mode works for it too.
"""

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from common.domain import Quantization
from worker.model.four_bit_linear import FourBitLinear
from worker.model.int8_linear import Int8Linear


def quantize(
    model: Any, how: Quantization, *, double_quant: bool, compute_dtype: torch.dtype
) -> None:
    """Quantize ``model`` in place; ``compute_dtype`` is what all other parameters are cast to."""
    if how is not Quantization.NONE:
        for parent, name, linear in _linears(model):
            weight, bias = _weight_and_bias(linear)
            quantized = (
                Int8Linear.from_weight(weight, bias)
                if how is Quantization.INT8
                else FourBitLinear(
                    weight, bias, how, double_quant=double_quant, compute_dtype=compute_dtype
                )
            )
            setattr(parent, name, quantized)
    _cast(model, compute_dtype)


def _linears(model: Any) -> list[tuple[nn.Module, str, nn.Module]]:
    head = model.get_output_embeddings()
    return [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if isinstance(child, nn.Linear | Conv1D) and child is not head
    ]


def _weight_and_bias(linear: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As [out, in]."""
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, torch.Tensor)
    data = weight.data.t() if isinstance(linear, Conv1D) else weight.data
    return data.contiguous(), bias.data if isinstance(bias, torch.Tensor) else None


def _cast(model: Any, dtype: torch.dtype) -> None:
    """Cast parameters that hold plain numbers; buffers, such as rotary frequencies, keep their precision."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            parameter.data = parameter.data.to(dtype)
