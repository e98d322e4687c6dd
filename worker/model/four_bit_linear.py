"""bitsandbytes' 4-bit linear layer, kept to shapes that its CPU code computes right.

A quantization block is 64 neighbours in memory. Where a row is no multiple of that, blocks run on into the next row,
which bitsandbytes' CPU kernels (0.50) mostly decode wrongly; their fused product also wants rows by 32. So weights
are padded with zeros to both, and the padding is cut off again.
"""

import torch
from torch import nn
from torch.nn.functional import pad

from common.domain import Quantization
from worker.model.quiet_bitsandbytes import bitsandbytes

_BLOCK = 64
_ROWS = 32


class FourBitLinear(nn.Module):
    """A linear layer whose weights are stored in 4 bits."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        how: Quantization,
        *,
        double_quant: bool,
        compute_dtype: torch.dtype,
    ) -> None:
        """Quantize ``weight`` [out, in]; ``double_quant`` also stores the blocks' scales in 8 bits."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._extra_in = -self.in_features % _BLOCK
        bnb = bitsandbytes()
        padded = pad(weight, (0, self._extra_in, 0, -self.out_features % _ROWS)).contiguous()
        layer = bnb.nn.Linear4bit(
            padded.shape[1],
            padded.shape[0],
            bias=False,
            compute_dtype=compute_dtype,
            compress_statistics=double_quant,
            quant_type=how.value,
            device="meta",
        )
        layer.weight = bnb.nn.Params4bit(
            padded, requires_grad=False, compress_statistics=double_quant, quant_type=how.value
        )
        self._layer = layer.to(weight.device).eval()
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out], in the dtype of ``inputs``."""
        if self._extra_in:
            inputs = pad(inputs, (0, self._extra_in))
        out: torch.Tensor = self._layer(inputs)[..., : self.out_features]
        return out if self.bias is None else out + self.bias
