"""Blocks of 32 weights: what is made of floats, and what of a GGUF file is kept as it is."""

import gguf
import numpy as np
import pytest
import torch

from worker.engine.model_settings import ModelSettings
from worker.kernels.library import KernelsMissing, load
from worker.model.checkpoint import find_checkpoint
from worker.model.lean.blocks import (
    BlockFile,
    blocks_of_4,
    blocks_of_8,
    join,
    save_blocks,
    values,
)

try:
    load()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

KINDS = ["Q4_0", "Q4_1", "Q8_0"]


def normal(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("make", "levels"), [(blocks_of_4, 15), (blocks_of_8, 254)])
def test_floats_lie_within_half_a_step(make, levels):
    """A block covers its own range; equal values and zeros have no step and stay what they are."""
    weight = normal(0, 6, 96)
    weight[0, :32], weight[1, :32] = 0.0, 0.5
    found = values(make(weight))
    span = weight.view(6, 3, 32).abs().amax(dim=-1, keepdim=True).expand(6, 3, 32).reshape(6, 96)
    assert (np.abs(found - weight.numpy()) <= 2 * span.numpy() / levels * 0.51 + 1e-3).all()
    assert not found[0, :32].any()
    assert (np.abs(found[1, :32] - 0.5) < 1e-3).all()


class File:
    """As much of an open GGUF file as a conversion looks at."""

    def __init__(self, **tensors):
        self.tensors = [Tensor(name, kind, data) for name, (kind, data) in tensors.items()]


class Tensor:
    def __init__(self, name, kind, data):
        self.name, self.data = name, data
        self.tensor_type = gguf.GGMLQuantizationType[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [None, 2])
def test_the_blocks_of_a_file_are_kept(tmp_path, kind, heads):
    """What is kept stands for the very values of the tensor, also where rows of heads were interleaved."""
    how = gguf.GGMLQuantizationType[kind]
    raw = gguf.quants.quantize(normal(1, 16, 64).numpy(), how)
    expected = gguf.quants.dequantize(raw, how)
    if heads is not None:
        expected = expected.reshape(heads, -1, 2, 64).swapaxes(1, 2).reshape(16, 64)
    name = "model.layers.3.self_attn.q_proj.weight"
    tensors = {name: torch.from_numpy(expected.copy())}
    save_blocks(File(**{"blk.3.attn_q.weight": (kind, raw)}), tensors, tmp_path)
    found = BlockFile(tmp_path).read(name)
    assert found is not None
    assert (values(found) == expected).all()


def test_blocks_of_other_values_are_not_kept(tmp_path):
    """Nothing is kept that does not stand for the tensor, and nothing is read where nothing was kept."""
    raw = gguf.quants.quantize(normal(1, 16, 64).numpy(), gguf.GGMLQuantizationType.Q4_1)
    name = "model.layers.0.mlp.up_proj.weight"
    save_blocks(
        File(**{"blk.0.ffn_up.weight": ("Q4_1", raw)}), {name: normal(2, 16, 64)}, tmp_path
    )
    assert BlockFile(tmp_path).read(name) is None
    assert BlockFile(tmp_path / "elsewhere").read(name) is None


def test_the_default_model_runs_as_it_is():
    """Every linear layer, and the embeddings, of the packaged file are kept."""
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    kept = BlockFile(folder)
    parts = ("q", "k", "v", "o")
    names = [f"model.layers.29.self_attn.{p}_proj.weight" for p in parts]
    names += [f"model.layers.0.mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
    assert all(kept.read(name) is not None for name in names)
    embedding = kept.read("model.embed_tokens.weight")
    assert embedding is not None
    assert embedding.least is None


def test_rows_are_joined_and_put_in_order():
    """Rows of several tensors, some left out: -1 is a row of zeros."""
    parts = [blocks_of_4(normal(n, 4, 64)) for n in range(2)]
    both = np.concatenate([values(part) for part in parts])
    order = np.array([5, -1, 0])
    found = values(join(parts).rows(order))
    assert (found[[0, 2]] == both[[5, 0]]).all()
    assert not found[1].any()
