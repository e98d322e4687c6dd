"""The paged store of keys and values: plain tensors, addressed by slot.

    slot = block * block_size + offset

        blocks  0 ........ num_blocks - 1 │ ZERO │ SINK
                owned by the block pool   │ never written, reads as zeros
                                          │        padding tokens write here

Gathers are padded with slots of the zero block, never with another row's: a masked position still takes part
in the arithmetic, and zero times NaN is NaN.

In int8 a head's key and its value are whole steps of a scale each: 1/127 of the largest number among them. What a token
stores depends on nothing but the token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from worker.kernels.arrays import zeros

_CPU = torch.device("cpu")
_LEVELS = 127.0


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps for a token, how far back it looks (``window`` None: to the start), and where it is computed."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    device: torch.device = _CPU

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Memory of one token in ``dtype``, which may be int8."""
        numbers = self.num_kv_heads * (self.key_dim + self.value_dim)
        scales = 2 * self.num_kv_heads if dtype is torch.int8 else 0
        return numbers * dtype.itemsize + scales * torch.float32.itemsize


class PagedCache:
    """Keys and values of all layers; a head's key and value lie side by side, so that one gather brings both."""

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        stored: torch.dtype | None = None,
    ) -> None:
        """Reads and writes numbers of ``dtype``, and keeps them as ``stored``: the same if None, or int8.

        All memory is asked for at once; on a CPU the system gives a page when it is first written.
        """
        self.layers = tuple(layers)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.zero_slot = num_blocks * block_size
        self.sink_slot = (num_blocks + 1) * block_size
        self._numbers = [
            _zeros(
                (num_blocks + 2, block_size, one.num_kv_heads, one.key_dim + one.value_dim),
                stored or dtype,
                one.device,
            )
            for one in self.layers
        ]
        self._scales = [
            _zeros((num_blocks + 2, block_size, one.num_kv_heads, 2), torch.float32, one.device)
            for one in self.layers
            if stored is torch.int8
        ]

    @property
    def stores(self) -> list[torch.Tensor]:
        """All tensors that hold something of the blocks, each [blocks, ...]."""
        return [*self._numbers, *self._scales]

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Store ``key`` and ``value``, each [tokens, heads, dim], at ``slots`` [tokens]."""
        if self._scales:
            (key, key_scale), (value, value_scale) = _in_steps(key), _in_steps(value)
            scales = torch.cat((key_scale, value_scale), dim=-1)
            _flat(self._scales[layer]).index_copy_(0, slots, scales)
        _flat(self._numbers[layer]).index_copy_(0, slots, torch.cat((key, value), dim=-1))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at ``slots`` [...], each as [..., heads, dim]."""
        both = _gather(self._numbers[layer], slots)
        key_dim = self.layers[layer].key_dim
        key, value = both[..., :key_dim], both[..., key_dim:]
        if not self._scales:
            return key, value
        scales = _gather(self._scales[layer], slots)
        return (key * scales[..., :1]).to(self.dtype), (value * scales[..., 1:]).to(self.dtype)


def _flat(store: torch.Tensor) -> torch.Tensor:
    return store.flatten(0, 1)


def _gather(store: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return _flat(store).index_select(0, slots.reshape(-1)).view(*slots.shape, *store.shape[2:])


def _in_steps(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``numbers`` [..., dim] as int8, and what a step is worth [..., 1]; what is no number stays none by its scale."""
    scale = numbers.float().abs().amax(dim=-1, keepdim=True) / _LEVELS
    steps = numbers.float() / scale.clamp_min(torch.finfo(torch.float32).tiny)
    return steps.round_().to(torch.int8), scale


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch would write its zeros, and with them take gigabytes that may never be needed.
    memory = zeros((math.prod(shape) * dtype.itemsize,), np.uint8)
    return torch.from_numpy(memory).view(dtype).view(shape)
