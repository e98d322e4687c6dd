"""A checkpoint's tensors, read from safetensors and packed for the kernels, layer by layer.

Int8 weights and scales are what bitsandbytes makes of the same tensors: each row by its largest magnitude. Embeddings
and head stay in 16 bit.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from worker.kernels.arrays import Array, pack_head, pack_int8, padded, round_up, zeros
from worker.kernels.structs import Linear
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
        self._read: set[str] = set()
        if not self._files:
            raise NotLean(f"a checkpoint without safetensors is not covered: {folder.name}")

    def unread(self) -> list[str]:
        """Names of tensors that nobody has asked for."""
        return sorted(set(self._files) - self._read)

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

    weights: Array
    scales: Array
    bias: Array | None

    @property
    def struct(self) -> Linear:
        """What the kernels are told."""
        n, k = self.weights.shape
        return Linear(
            self.weights.ctypes.data,
            self.scales.ctypes.data,
            None if self.bias is None else self.bias.ctypes.data,
            n,
            k,
        )


def quantize_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 rows, and what one step of each row is worth, as ``int8_vectorwise_quant`` of bitsandbytes gives them."""
    weight = weight.float()
    largest = weight.abs().amax(dim=1)
    steps = torch.round(weight * (_LEVELS / largest).unsqueeze(1))
    return steps.nan_to_num_(0.0).to(torch.int8), largest / _LEVELS


def pack_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> PackedLinear:
    """Quantize and pack ``weight`` [outputs, inputs]."""
    steps, scales = quantize_rows(weight)
    weights = pack_int8(steps.numpy())
    return PackedLinear(
        weights,
        padded(scales.numpy(), weights.shape[0]),
        None if bias is None else padded(bias.float().numpy(), weights.shape[0]),
    )


def interleave(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """64 rows of the gate, the 64 of up that belong to them, and so on; zeros where the last group is not full."""
    rows, inputs = gate.shape
    both = torch.zeros((round_up(rows) // 64, 2, 64, inputs))
    for index, part in enumerate((gate, up)):
        filled = torch.zeros((round_up(rows), inputs))
        filled[:rows] = part
        both[:, index] = filled.view(-1, 64, inputs)
    return both.view(-1, inputs)


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
    embedding: Array
    head: Array
    final_norm: Array
    inverse_frequencies: Array


def load_weights(checkpoint: Checkpoint, spec: LeanSpec) -> LeanWeights:
    """Read and pack everything.

    Raises:
        NotLean: a tensor is missing, or one is there that the decoder would not use.
    """
    shape = (spec.vocab, spec.hidden)
    embedding = pack_head(checkpoint.read("model.embed_tokens.weight", *shape).float().numpy())
    head = embedding
    if not spec.tied:
        head = pack_head(checkpoint.read("lm_head.weight", *shape).float().numpy())
    layers = tuple(
        _Reader(checkpoint, spec, f"model.layers.{index}.").layer()
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


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tensors of one layer."""

    checkpoint: Checkpoint
    spec: LeanSpec
    prefix: str

    def layer(self) -> LayerWeights:
        spec = self.spec
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        parts = {"q": queries, "k": keys, "v": keys}
        qkv = [self._read(f"self_attn.{p}_proj.weight", n, spec.hidden) for p, n in parts.items()]
        bias = None
        if spec.attention_bias:
            bias = torch.cat([self._read(f"self_attn.{p}_proj.bias", n) for p, n in parts.items()])
        mlp = (spec.intermediate, spec.hidden)
        return LayerWeights(
            attention_norm=self._norm("input_layernorm", spec.hidden),
            mlp_norm=self._norm("post_attention_layernorm", spec.hidden),
            query_norm=self._head_norm("self_attn.q_norm"),
            key_norm=self._head_norm("self_attn.k_norm"),
            qkv=pack_linear(torch.cat(qkv), bias),
            out=pack_linear(self._read("self_attn.o_proj.weight", spec.hidden, queries)),
            gate_up=pack_linear(
                interleave(
                    self._read("mlp.gate_proj.weight", *mlp),
                    self._read("mlp.up_proj.weight", *mlp),
                )
            ),
            down=pack_linear(self._read("mlp.down_proj.weight", *reversed(mlp))),
        )

    def _read(self, name: str, *shape: int) -> torch.Tensor:
        return self.checkpoint.read(self.prefix + name, *shape)

    def _norm(self, name: str, width: int) -> Array:
        return padded(self._read(f"{name}.weight", width).float().numpy(), round_up(width))

    def _head_norm(self, name: str) -> Array | None:
        return self._norm(name, self.spec.head_dim) if self.spec.query_key_norm else None
