"""bitsandbytes' 4-bit linear layer, kept to shapes that its CPU code computes right.

A quantization block is 64 neighbours in memory. Where a row is no multiple of that, blocks run on into the next row,
which bitsandbytes' CPU kernels (0.50) mostly decode wrongly; their fused product also wants rows by 32. So weights
are padded with zeros to both, and the padding is cut off again.
"""

from typing import Any, Self

import torch
from torch import nn
from torch.nn.functional import pad

from common.domain import Quantization
from worker.model.errors import ModelRefused
from worker.model.quiet_bitsandbytes import bitsandbytes

_BLOCK = 64
_ROWS = 32


def four_bit_layer(
    weight: torch.Tensor, how: Quantization, *, double_quant: bool, compute_dtype: torch.dtype
) -> Any:
    """bitsandbytes' layer of ``weight`` [out, in]."""
    bnb = bitsandbytes()
    layer = bnb.nn.Linear4bit(
        weight.shape[1],
        weight.shape[0],
        bias=False,
        compute_dtype=compute_dtype,
        compress_statistics=double_quant,
        quant_type=how.value,
        device="meta",
    )
    layer.weight = bnb.nn.Params4bit(
        weight, requires_grad=False, compress_statistics=double_quant, quant_type=how.value
    )
    return layer.to(weight.device).eval()


def check_alignment(name: str, out_features: int, in_features: int) -> None:
    """Refuse a layer that cannot be stored without padding.

    Raises:
        ModelRefused: names the layer and its shape.
    """
    if in_features % _BLOCK or out_features % _ROWS:
        raise ModelRefused(
            f"{name}: stored in 4 bits, {in_features} inputs must be a multiple of {_BLOCK}"
            f" and {out_features} outputs one of {_ROWS}; quantize at load, or to int8"
        )


class FourBitLinear(nn.Module):
    """A linear layer whose weights are stored in 4 bits."""

    def __init__(
        self, layer: Any, bias: torch.Tensor | None, *, in_features: int, out_features: int
    ) -> None:
        """``layer`` is bitsandbytes' own, without a bias and at least as large."""
        super().__init__()
        self.out_features, self.in_features = out_features, in_features
        self._extra_in = layer.in_features - in_features
        self._layer = layer
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @classmethod
    def from_weight(
        cls,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        how: Quantization,
        *,
        double_quant: bool,
        compute_dtype: torch.dtype,
    ) -> Self:
        """Quantize ``weight`` [out, in]; ``double_quant`` also stores the blocks' scales in 8 bits."""
        rows, columns = weight.shape
        padded = pad(weight, (0, -columns % _BLOCK, 0, -rows % _ROWS)).contiguous()
        layer = four_bit_layer(padded, how, double_quant=double_quant, compute_dtype=compute_dtype)
        return cls(layer, bias, in_features=columns, out_features=rows)

    @classmethod
    def from_stored(cls, name: str, layer: Any, *, compute_dtype: torch.dtype) -> Self:
        """Take over a layer that transformers loaded.

        Raises:
            ModelRefused: its shape is one that is not computed right.
        """
        check_alignment(name, layer.out_features, layer.in_features)
        bias, layer.bias = layer.bias, None
        layer.compute_dtype = compute_dtype
        layer.compute_type_is_set = False
        return cls(
            layer.eval(),
            None if bias is None else bias.data,
            in_features=layer.in_features,
            out_features=layer.out_features,
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out], in the dtype of ``inputs``."""
        if self._extra_in:
            inputs = pad(inputs, (0, self._extra_in))
        out: torch.Tensor = self._layer(inputs)[..., : self.out_features]
        return out if self.bias is None else out + self.bias
