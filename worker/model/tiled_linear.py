"""A linear layer whose rows come out with the same bits whatever else is in the batch.

Matrix products choose their path, and with it the order of summation, by the number of rows. On CPUs with AVX-512,
torch's float32 product has one path for 1, 2 and 3 rows each, one up to 15, one up to about 50 and others above;
bfloat16 one up to 3 and, for wide outputs, one up to 32. Here every product has a number of rows from one such
range, by padding and by splitting. A product with a single output is a product with a vector, whose sums depend on the
number of rows everywhere: it gets a second output of zeros, which is cut off.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear, pad


@dataclass(frozen=True, slots=True)
class Tile:
    """Bounds of a product's number of rows; ``most`` must be at least twice ``least``."""

    least: int
    most: int


EXACT_TILES = {
    torch.float32: Tile(16, 48),
    torch.bfloat16: Tile(4, 32),
    torch.float16: Tile(4, 32),
}


class TiledLinear(nn.Module):
    """A linear layer computed in products of between ``tile.least`` and ``tile.most`` rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, tile: Tile) -> None:
        """``weight`` [out, in] may be shared, as heads share it with embeddings."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        if self.out_features == 1:
            weight = pad(weight, (0, 0, 0, 1))
            bias = None if bias is None else pad(bias, (0, 1))
        self.weight = (
            weight
            if isinstance(weight, nn.Parameter)
            else nn.Parameter(weight, requires_grad=False)
        )
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self._tile = tile

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        rows = inputs.reshape(-1, self.in_features)
        missing = self._tile.least - rows.shape[0]
        if missing > 0:
            out = linear(pad(rows, (0, 0, 0, missing)), self.weight, self.bias)[:-missing]
        elif rows.shape[0] <= self._tile.most:
            out = linear(rows, self.weight, self.bias)
        else:  # parts of nearly equal size, so none is below half of the most
            parts = rows.tensor_split(-(-rows.shape[0] // self._tile.most))
            out = torch.cat([linear(part, self.weight, self.bias) for part in parts])
        return out[:, : self.out_features].view(*inputs.shape[:-1], self.out_features)
