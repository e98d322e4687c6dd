"""bitsandbytes' int8 weights, multiplied by integers only.

The weights are what bitsandbytes stores (CB: int8 rows, SCB: each row's largest magnitude). Its own forward takes
outlier columns over the whole batch, which lets rows influence one another, and is several times slower on a CPU.
Here each row of activations is quantized by itself, products are accumulated in int32, which is exact in any
order, and scaled at the end: a row's result does not depend on its batch mates at all.

Eight bits of activation cost 2.6 % of perplexity on the default model. So what the first eight bits leave over is
quantized again with 1/254 of the scale and multiplied in the same call:

    x  =  scale * (high + low / 254)        both int8, |x - …| <= scale / 508
    y  =  scale * row_scale * (high @ W + low @ W / 254)
"""

from typing import Self

import torch
from torch import nn

from worker.model.quiet_bitsandbytes import bitsandbytes

_LEVELS = 127.0
_FINE = 254.0


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight`` [out, in] in steps, and each row's largest magnitude; bitsandbytes' CUDA kernel takes float16 only."""
    source = weight.half() if weight.is_cuda else weight.float()
    steps, largest, _ = bitsandbytes().functional.int8_vectorwise_quant(source)
    return steps, largest


class Int8Linear(nn.Module):
    """A linear layer with int8 weights and exact integer accumulation."""

    def __init__(
        self, weight: torch.Tensor, row_scale: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        """``weight`` [out, in] int8; ``row_scale`` [out] float32 is what one step of a weight is worth."""
        super().__init__()
        self.weight: torch.Tensor
        self.row_scale: torch.Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("row_scale", row_scale)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.in_features, self.out_features = weight.shape[1], weight.shape[0]

    @classmethod
    def from_weight(cls, weight: torch.Tensor, bias: torch.Tensor | None) -> Self:
        """Quantize ``weight`` [out, in]."""
        return cls.from_stored(*quantize_rows(weight), bias)

    @classmethod
    def from_stored(
        cls, steps: torch.Tensor, largest: torch.Tensor, bias: torch.Tensor | None
    ) -> Self:
        """Of weights as bitsandbytes stores them."""
        return cls(steps, largest.flatten() / _LEVELS, bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out], in the dtype of ``inputs``."""
        rows = inputs.reshape(-1, self.in_features).float()
        scale = rows.abs().amax(dim=1, keepdim=True).div_(_LEVELS)
        steps = rows / scale.clamp_min(torch.finfo(torch.float32).tiny)
        high = steps.round()
        low = steps.sub_(high).mul_(_FINE).round_()
        both = torch.cat((high, low)).to(torch.int8)
        products = torch._int_mm(both, self.weight.t()).float()
        coarse, fine = products.chunk(2)
        out = coarse.add_(fine, alpha=1 / _FINE).mul_(scale).mul_(self.row_scale)
        if self.bias is not None:
            out.add_(self.bias)
        return out.to(inputs.dtype).view(*inputs.shape[:-1], self.out_features)
