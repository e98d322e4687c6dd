"""The paged store of keys and values: plain tensors, addressed by slot.

    slot = block * block_size + offset

        blocks  0 ........ num_blocks - 1 │ ZERO │ SINK
                owned by the block pool   │ never written, reads as zeros
                                          │        padding tokens write here

Gathers are padded with slots of the zero block, never with another row's: a masked position still takes part
in the arithmetic, and zero times NaN is NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from worker.kernels.arrays import zeros


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps for a token, and how far back it looks (``window`` None: to the start)."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    @property
    def elements_per_token(self) -> int:
        """Numbers stored for one token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class PagedCache:
    """Keys and values of all layers; a head's key and value lie side by side, so that one gather brings both."""

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """All memory is asked for at once; on a CPU the system gives a page when it is first written."""
        self.layers = tuple(layers)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.zero_slot = num_blocks * block_size
        self.sink_slot = (num_blocks + 1) * block_size
        self.stores = [
            _zeros(
                (num_blocks + 2, block_size, shape.num_kv_heads, shape.key_dim + shape.value_dim),
                dtype,
                device,
            )
            for shape in self.layers
        ]

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Store ``key`` and ``value``, each [tokens, heads, dim], at ``slots`` [tokens]."""
        self._flat(layer).index_copy_(0, slots, torch.cat((key, value), dim=-1))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at ``slots`` [...], each as [..., heads, dim]."""
        store = self._flat(layer)
        both = store.index_select(0, slots.reshape(-1)).view(*slots.shape, *store.shape[1:])
        key_dim = self.layers[layer].key_dim
        return both[..., :key_dim], both[..., key_dim:]

    def _flat(self, layer: int) -> torch.Tensor:
        return self.stores[layer].flatten(0, 1)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch would write its zeros, and with them take gigabytes that may never be needed.
    memory = zeros((math.prod(shape) * dtype.itemsize,), np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
