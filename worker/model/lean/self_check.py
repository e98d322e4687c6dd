"""Compares the kernels with plain torch on a tiny decoder, before they serve anyone.

Tests prove them where they are built; what a processor or a compiler that nobody has tested makes of them is seen here.
The weights lie on a grid that the formats can hold, or are what a format makes of them, so that what may differ is the
rounding of activations.
"""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from common.domain import Quantization
from worker.engine.runner import Row
from worker.kernels import reference
from worker.kernels.structs import KvFormat
from worker.model.lean.checkpoint import Checkpoint
from worker.model.lean.decoder import LeanDecoder
from worker.model.lean.four_bit import FORMATS, quantize
from worker.model.lean.spec import LeanSpec, NotLean
from worker.model.lean.weights import load_weights

_TOLERANCE = 0.15
"""Of the logits' norm: 8 bit activations, keys and values stay below half of it, any mistake is far above."""

_TOKENS = 70  # more than one tile of keys
_CHUNK = 67  # and then a few, as a decode has them
_BLOCK_SIZE = 16

Tensors = dict[str, torch.Tensor]


def check_kernels(isa: str, how: Quantization, kv: KvFormat) -> None:
    """Run a text in two chunks, with a window and with norms on queries and keys.

    Raises:
        NotLean: the kernels' output is not the reference's.
    """
    spec = _tiny_spec()
    tensors = _random_tensors(spec)
    text = torch.randint(spec.vocab, (_TOKENS,), generator=torch.Generator().manual_seed(1))
    expected = _reference_logits(spec, _as_stored(tensors, how), text)[-1]
    found = _kernel_logits(spec, tensors, text.tolist(), isa, how, kv)
    error = (found - expected).norm() / expected.norm()
    if not error <= _TOLERANCE:
        raise NotLean(f"the kernels for {isa} differ from plain torch by {error:.0%}")


def _tiny_spec() -> LeanSpec:
    return LeanSpec(
        hidden=96,
        vocab=100,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate=160,
        norm_epsilon=1e-5,
        windows=(0, 20),
        inverse_frequencies=tuple(100.0 ** -(i / 16) for i in range(16)),
        rope_factor=1.0,
        tied=True,
        attention_bias=False,
        query_key_norm=True,
    )


def _random_tensors(spec: LeanSpec) -> Tensors:
    generator = torch.Generator().manual_seed(0)

    def grid(outputs: int, inputs: int) -> torch.Tensor:
        steps = torch.randint(-7, 9, (outputs, inputs), generator=generator)
        return steps.float() / (4 * inputs**0.5)

    tensors = {
        "model.embed_tokens.weight": grid(spec.vocab, spec.hidden),
        "model.norm.weight": torch.ones(spec.hidden),
    }
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    for index in range(spec.num_layers):
        layer = {
            "input_layernorm": torch.full((spec.hidden,), 0.9),
            "post_attention_layernorm": torch.full((spec.hidden,), 1.1),
            "self_attn.q_norm": torch.ones(spec.head_dim),
            "self_attn.k_norm": torch.ones(spec.head_dim),
            "self_attn.q_proj": grid(queries, spec.hidden),
            "self_attn.k_proj": grid(keys, spec.hidden),
            "self_attn.v_proj": grid(keys, spec.hidden),
            "self_attn.o_proj": grid(spec.hidden, queries),
            "mlp.gate_proj": grid(spec.intermediate, spec.hidden),
            "mlp.up_proj": grid(spec.intermediate, spec.hidden),
            "mlp.down_proj": grid(spec.hidden, spec.intermediate),
        }
        tensors |= {f"model.layers.{index}.{name}.weight": x for name, x in layer.items()}
    return tensors


def _as_stored(tensors: Tensors, how: Quantization) -> Tensors:
    """What the decoder's linear layers have, where they have not the very grid."""
    if how not in FORMATS:
        return tensors
    return {
        name: torch.from_numpy(quantize(x, how).values()) if "_proj." in name else x
        for name, x in tensors.items()
    }


def _kernel_logits(
    spec: LeanSpec, tensors: Tensors, text: list[int], isa: str, how: Quantization, kv: KvFormat
) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, Path(folder) / "model.safetensors")
        weights = load_weights(Checkpoint(Path(folder)), spec, how)
    blocks = -(-_TOKENS // _BLOCK_SIZE)
    decoder = LeanDecoder(
        spec, weights, isa=isa, threads=1, num_blocks=blocks, block_size=_BLOCK_SIZE, kv=kv
    )
    table = list(reversed(range(blocks)))
    decoder.logits([Row(text[:_CHUNK], 0, table, None)], [])
    return torch.from_numpy(decoder.logits([Row(text[_CHUNK:], _CHUNK, table, None)], [0])[0])


def _reference_logits(spec: LeanSpec, tensors: Tensors, text: torch.Tensor) -> torch.Tensor:
    x = tensors["model.embed_tokens.weight"][text]
    for index, window in enumerate(spec.windows):
        prefix = f"model.layers.{index}."
        layer = {
            name.removeprefix(prefix).removesuffix(".weight"): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        x = x + _attention(spec, layer, x, window)
        h = reference.norm(x, layer["post_attention_layernorm"], spec.norm_epsilon)
        gate = torch.nn.functional.silu(h @ layer["mlp.gate_proj"].t())
        x = x + (gate * (h @ layer["mlp.up_proj"].t())) @ layer["mlp.down_proj"].t()
    x = reference.norm(x, tensors["model.norm.weight"], spec.norm_epsilon)
    return x @ tensors["model.embed_tokens.weight"].t()


def _attention(spec: LeanSpec, layer: Tensors, x: torch.Tensor, window: int) -> torch.Tensor:
    h = reference.norm(x, layer["input_layernorm"], spec.norm_epsilon)
    positions, frequencies = torch.arange(len(x)), torch.tensor(spec.inverse_frequencies)
    query, key, value = (
        (h @ layer[f"self_attn.{name}_proj"].t()).view(len(x), -1, spec.head_dim) for name in "qkv"
    )
    query = reference.norm(query, layer["self_attn.q_norm"], spec.norm_epsilon)
    key = reference.norm(key, layer["self_attn.k_norm"], spec.norm_epsilon)
    out = reference.attention(
        reference.rope(query, positions, frequencies),
        reference.rope(key, positions, frequencies),
        value,
        window,
    )
    return out.reshape(len(x), -1) @ layer["self_attn.o_proj"].t()
