"""What the kernels multiply by: linear layers in one of the formats, embeddings and head in blocks of 8 bits.

Int8 weights and scales are what bitsandbytes makes of the same tensors: each row by its largest magnitude. A GGUF file's
own blocks are taken as they are; blocks of 8 bits are half the bytes of 16 bits, and next to no error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from common.domain import Quantization
from worker.kernels.arrays import (
    Array,
    Blocks,
    Packed,
    pack_bfloat16,
    pack_blocks,
    pack_int8,
    padded,
)
from worker.kernels.codes import Codes, pack_codes
from worker.kernels.structs import Linear
from worker.model.lean.blocks import BLOCK, blocks_of_4, blocks_of_8, join
from worker.model.lean.checkpoint import Checkpoint
from worker.model.lean.four_bit import from_stored, quantize
from worker.model.lean.spec import NotLean

_LEVELS = 127.0

Part = tuple[str, tuple[int, int]]
"""A tensor's name and shape."""


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A linear layer's arrays; they must live as long as ``struct`` is used."""

    packed: Packed
    scales: Array | None = None
    bias: Array | None = None

    @property
    def struct(self) -> Linear:
        """What the kernels are told."""
        return Linear(
            self.packed.data.ctypes.data,
            None if self.scales is None else self.scales.ctypes.data,
            None if self.bias is None else self.bias.ctypes.data,
            self.packed.n,
            self.packed.k,
            self.packed.format,
        )


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 rows, and what one step of each row is worth, as ``int8_vectorwise_quant`` of bitsandbytes gives them."""
    weight = weight.float()
    largest = weight.abs().amax(dim=1)
    steps = torch.round(weight * (_LEVELS / largest).unsqueeze(1))
    return steps.nan_to_num_(0.0).to(torch.int8), largest / _LEVELS


def pack_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> PackedLinear:
    """Quantize ``weight`` [outputs, inputs] to int8 and pack it."""
    steps, scales = quantize_rows(weight)
    packed = pack_int8(steps.numpy())
    return PackedLinear(packed, padded(scales.numpy(), packed.n), _packed_bias(bias, packed.n))


def _packed_bias(bias: torch.Tensor | None, n: int) -> Array | None:
    return None if bias is None else padded(bias.float().numpy(), n)


class Packing(Protocol):
    """Makes what the kernels multiply by."""

    def table(self, name: str, shape: tuple[int, int]) -> PackedLinear:
        """Embeddings, or a head."""
        ...

    def linear(
        self,
        parts: Sequence[Part],
        bias: torch.Tensor | None = None,
        order: npt.NDArray[np.intp] | None = None,
    ) -> PackedLinear:
        """Tensors one behind another, with their rows in ``order``."""
        ...


@dataclass(frozen=True, slots=True)
class Int8(Packing):
    """Int8 rows; embeddings and head in blocks of 8 bits, or in 16 bits where they have no blocks."""

    checkpoint: Checkpoint

    def table(self, name: str, shape: tuple[int, int]) -> PackedLinear:
        if shape[1] % BLOCK:
            return PackedLinear(pack_bfloat16(self.checkpoint.read(name, *shape).float().numpy()))
        return BlocksOf4(self.checkpoint).table(name, shape)

    def linear(
        self,
        parts: Sequence[Part],
        bias: torch.Tensor | None = None,
        order: npt.NDArray[np.intp] | None = None,
    ) -> PackedLinear:
        rows = torch.cat([self.checkpoint.read(name, *shape) for name, shape in parts])
        if order is not None:
            index = torch.from_numpy(order)
            rows = rows[index].masked_fill_((index < 0).unsqueeze(1), 0.0)
        return pack_linear(rows, bias)


@dataclass(frozen=True, slots=True)
class BlocksOf4(Packing):
    """Blocks of 4 bits, embeddings and head of 8: those of a GGUF file as they are, or made in the same form."""

    checkpoint: Checkpoint

    def table(self, name: str, shape: tuple[int, int]) -> PackedLinear:
        return PackedLinear(pack_blocks(self._read(name, shape, of_4=False)))

    def linear(
        self,
        parts: Sequence[Part],
        bias: torch.Tensor | None = None,
        order: npt.NDArray[np.intp] | None = None,
    ) -> PackedLinear:
        blocks = join([self._read(name, shape, of_4=True) for name, shape in parts])
        packed = pack_blocks(blocks if order is None else blocks.rows(order))
        return PackedLinear(packed, None, _packed_bias(bias, packed.n))

    def _read(self, name: str, shape: tuple[int, int], *, of_4: bool) -> Blocks:
        if shape[1] % BLOCK:
            raise NotLean(f"{name} with {shape[1]} inputs has no blocks of {BLOCK}")
        own = self.checkpoint.blocks(name)
        if own is not None and (own.least is not None) == of_4:
            return own
        weight = self.checkpoint.read(name, *shape)
        return blocks_of_4(weight) if of_4 else blocks_of_8(weight)


@dataclass(frozen=True, slots=True)
class CodesOf4(Packing):
    """bitsandbytes' nf4 or fp4: as a checkpoint stores it, or made in the same form. Embeddings and head as for int8."""

    checkpoint: Checkpoint
    how: Quantization
    double_quant: bool

    def table(self, name: str, shape: tuple[int, int]) -> PackedLinear:
        return Int8(self.checkpoint).table(name, shape)

    def linear(
        self,
        parts: Sequence[Part],
        bias: torch.Tensor | None = None,
        order: npt.NDArray[np.intp] | None = None,
    ) -> PackedLinear:
        codes = Codes.join([self._read(name, shape) for name, shape in parts])
        packed = pack_codes(codes if order is None else codes.rows(order))
        return PackedLinear(packed, None, _packed_bias(bias, packed.n))

    def _read(self, name: str, shape: tuple[int, int]) -> Codes:
        if self.checkpoint.is_quantized:
            return from_stored(name, self.checkpoint.parts(name), shape, self.how)
        weight = self.checkpoint.read(name, *shape)
        return quantize(weight, self.how, double_quant=self.double_quant)


def packing(checkpoint: Checkpoint, how: Quantization, *, double_quant: bool) -> Packing:
    """How weights are packed that are to be quantized so.

    Raises:
        NotLean: the kernels do not know this format.
    """
    match how:
        case Quantization.INT8:
            return Int8(checkpoint)
        case Quantization.Q4:
            return BlocksOf4(checkpoint)
        case Quantization.NF4 | Quantization.FP4:
            return CodesOf4(checkpoint, how, double_quant)
    raise NotLean(f"quantization {how} is not covered")
