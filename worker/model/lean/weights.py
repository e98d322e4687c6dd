"""All weights of a decoder, packed for the kernels, layer by layer."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from common.domain import Quantization
from worker.kernels.arrays import Array, padded, round_up, zeros
from worker.model.lean.checkpoint import Checkpoint
from worker.model.lean.packing import PackedLinear, Packing, Part, packing
from worker.model.lean.spec import LeanSpec, NotLean

_IGNORED = ("rotary_emb.inv_freq", "lm_head.weight")
"""Old checkpoints store frequencies that follow from the configuration; tied ones may repeat the embeddings."""


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
    checkpoint: Checkpoint,
    spec: LeanSpec,
    how: Quantization = Quantization.INT8,
    *,
    double_quant: bool = False,
) -> LeanWeights:
    """Read and pack everything.

    Raises:
        NotLean: a tensor is missing, or one is there that the decoder would not use, or the format is not covered.
    """
    make = packing(checkpoint, how, double_quant=double_quant)
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


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tensors of one layer."""

    checkpoint: Checkpoint
    make: Packing
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
