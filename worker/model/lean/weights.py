"""A checkpoint's tensors, read from safetensors and packed for the kernels, layer by layer.

Int8 weights and scales are what bitsandbytes makes of the same tensors: each row by its largest magnitude. Embeddings
and head have blocks of 32 in 8 bits, a GGUF file's own as they are: half the bytes of 16 bits, and next to no error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open

from common.domain import Quantization
from worker.kernels.arrays import (
    Array,
    Blocks,
    Packed,
    pack_bfloat16,
    pack_blocks,
    pack_int8,
    padded,
    round_up,
    zeros,
)
from worker.kernels.structs import Linear
from worker.model.lean.blocks import BLOCK, BlockFile, blocks_of_4, blocks_of_8, join
from worker.model.lean.spec import LeanSpec, NotLean

_LEVELS = 127.0

_IGNORED = ("rotary_emb.inv_freq", "lm_head.weight")
"""Old checkpoints store frequencies that follow from the configuration; tied ones may repeat the embeddings."""


class Checkpoint:
    """Tensors by name, from one or several files; each is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        """Opens every file of ``folder``.

        Raises:
            NotLean: it holds no safetensors.
        """
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file: Any = safe_open(path, framework="pt")
            self._files |= dict.fromkeys(file.keys(), file)
        self._blocks = BlockFile(folder)
        self._read: set[str] = set()
        if not self._files:
            raise NotLean(f"a checkpoint without safetensors is not covered: {folder.name}")

    def unread(self) -> list[str]:
        """Names of tensors that nobody has asked for."""
        return sorted(set(self._files) - self._read)

    def blocks(self, name: str) -> Blocks | None:
        """The blocks that a GGUF file had for a tensor, where the checkpoint was converted from one."""
        found = self._blocks.read(name)
        if found is not None:
            self._read.add(name)
        return found

    def read(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor as it is stored.

        Raises:
            NotLean: there is none of this name and shape, so the model is not what its configuration says.
        """
        if name not in self._files:
            raise NotLean(f"the checkpoint has no tensor {name}")
        self._read.add(name)
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise NotLean(f"{name} is not covered: {tensor.dtype} of {tuple(tensor.shape)}")
        return tensor


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


def interleaved(rows: int) -> npt.NDArray[np.intp]:
    """Where gate and up lie one behind the other, ``rows`` each: 64 rows of the gate, the 64 of up that belong to them,
    and so on; -1, a row of zeros, where the last group is not full.
    """
    gate = np.full(round_up(rows), -1, np.intp)
    gate[:rows] = np.arange(rows)
    up = np.where(gate < 0, -1, gate + rows)
    return np.stack((gate.reshape(-1, 64), up.reshape(-1, 64)), axis=1).reshape(-1)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, packed."""

    attention_norm: Array
    mlp_norm: Array
    query_norm: Array | None
    key_norm: Array | None
    qkv: PackedLinear
    out: PackedLinear
    gate_up: PackedLinear
    down: PackedLinear


@dataclass(frozen=True, slots=True)
class LeanWeights:
    """A whole decoder, packed."""

    layers: tuple[LayerWeights, ...]
    embedding: PackedLinear
    head: PackedLinear
    final_norm: Array
    inverse_frequencies: Array


def load_weights(
    checkpoint: Checkpoint, spec: LeanSpec, how: Quantization = Quantization.INT8
) -> LeanWeights:
    """Read and pack everything.

    Raises:
        NotLean: a tensor is missing, or one is there that the decoder would not use.
    """
    make: _Packing = _Int8(checkpoint) if how is Quantization.INT8 else _Blocks(checkpoint)
    shape = (spec.vocab, spec.hidden)
    embedding = make.table("model.embed_tokens.weight", shape)
    head = embedding if spec.tied else make.table("lm_head.weight", shape)
    layers = tuple(
        _Reader(checkpoint, make, spec, f"model.layers.{index}.").layer()
        for index in range(spec.num_layers)
    )
    final_norm = padded(
        checkpoint.read("model.norm.weight", spec.hidden).float().numpy(), round_up(spec.hidden)
    )
    unread = [name for name in checkpoint.unread() if not name.endswith(_IGNORED)]
    if unread:
        raise NotLean(f"the tensor {unread[0]} is not covered")
    frequencies = zeros((spec.head_dim // 2,), np.float32)
    frequencies[:] = spec.inverse_frequencies
    return LeanWeights(layers, embedding, head, final_norm, frequencies)


Part = tuple[str, tuple[int, int]]
"""A tensor's name and shape."""


class _Packing(Protocol):
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
class _Int8(_Packing):
    checkpoint: Checkpoint

    def table(self, name: str, shape: tuple[int, int]) -> PackedLinear:
        if shape[1] % BLOCK:
            return PackedLinear(pack_bfloat16(self.checkpoint.read(name, *shape).float().numpy()))
        return _Blocks(self.checkpoint).table(name, shape)

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
class _Blocks(_Packing):
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
class _Reader:
    """Reads the tensors of one layer."""

    checkpoint: Checkpoint
    make: _Packing
    spec: LeanSpec
    prefix: str

    def layer(self) -> LayerWeights:
        spec = self.spec
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        heads = {"q": queries, "k": keys, "v": keys}
        qkv = [self._part(f"self_attn.{p}_proj", n, spec.hidden) for p, n in heads.items()]
        bias = None
        if spec.attention_bias:
            bias = torch.cat([self._read(f"self_attn.{p}_proj.bias", n) for p, n in heads.items()])
        gate_up = [
            self._part(f"mlp.{p}_proj", spec.intermediate, spec.hidden) for p in ("gate", "up")
        ]
        return LayerWeights(
            attention_norm=self._norm("input_layernorm", spec.hidden),
            mlp_norm=self._norm("post_attention_layernorm", spec.hidden),
            query_norm=self._head_norm("self_attn.q_norm"),
            key_norm=self._head_norm("self_attn.k_norm"),
            qkv=self.make.linear(qkv, bias),
            out=self.make.linear([self._part("self_attn.o_proj", spec.hidden, queries)]),
            gate_up=self.make.linear(gate_up, order=interleaved(spec.intermediate)),
            down=self.make.linear([self._part("mlp.down_proj", spec.hidden, spec.intermediate)]),
        )

    def _part(self, name: str, outputs: int, inputs: int) -> Part:
        return f"{self.prefix}{name}.weight", (outputs, inputs)

    def _read(self, name: str, *shape: int) -> torch.Tensor:
        return self.checkpoint.read(self.prefix + name, *shape)

    def _norm(self, name: str, width: int) -> Array:
        return padded(self._read(f"{name}.weight", width).float().numpy(), round_up(width))

    def _head_norm(self, name: str) -> Array | None:
        return self._norm(name, self.spec.head_dim) if self.spec.query_key_norm else None
