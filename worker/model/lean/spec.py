"""What the lean decoder must know of a model, and which models it covers; everything else is refused by name.

A configuration is covered when every field that could change a number is understood. The families differ in little:
Qwen2 has biases on queries, keys and values, Qwen3 norms on queries and keys, Mistral a sliding window.
"""

from dataclasses import dataclass
from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from common.domain import Quantization
from worker.model.stored import stored_quantization

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE_TYPES = ("default", "linear", "llama3")
_LAYER_TYPES = ("full_attention", "sliding_attention")
_STORED = (Quantization.NF4, Quantization.FP4)
_UNIT = 16
_MOST_LINES = 48
_WIDEST_HEAD = 256
_MOST_LAYERS = 900


class NotLean(Exception):
    """The lean decoder does not cover this model; the message says what of it."""


@dataclass(frozen=True, slots=True)
class LeanSpec:
    """A decoder's shape and numbers."""

    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_epsilon: float
    windows: tuple[int, ...]  # of each layer; 0 sees everything
    inverse_frequencies: tuple[float, ...]
    rope_factor: float
    tied: bool
    attention_bias: bool
    query_key_norm: bool

    @property
    def num_layers(self) -> int:
        """Layers of the decoder."""
        return len(self.windows)


def read_spec(config: Any, block_size: int) -> LeanSpec:
    """The shape of the model with ``config``.

    Raises:
        NotLean: something in it is not covered.
    """
    family = config.model_type
    if family not in _FAMILIES:
        raise NotLean(f"models of type {family} are not covered")
    head_dim = (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    _check(config, head_dim, block_size)
    frequencies, factor = _rope(config)
    return LeanSpec(
        hidden=config.hidden_size,
        vocab=config.vocab_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        intermediate=config.intermediate_size,
        norm_epsilon=config.rms_norm_eps,
        windows=_windows(config),
        inverse_frequencies=frequencies,
        rope_factor=factor,
        tied=bool(config.tie_word_embeddings),
        attention_bias=family == "qwen2" or bool(getattr(config, "attention_bias", False)),
        query_key_norm=family == "qwen3",
    )


def _check(config: Any, head_dim: int, block_size: int) -> None:
    stored = stored_quantization(config)
    group, rest = divmod(config.num_attention_heads, config.num_key_value_heads)
    refused = {
        f"activation {config.hidden_act}": config.hidden_act != "silu",
        "biases in the MLP": getattr(config, "mlp_bias", False),
        "a bias on the attention's output": config.model_type != "qwen2"
        and getattr(config, "attention_bias", False),
        f"a checkpoint stored as {stored and stored.name}": stored is not None
        and stored.quantization not in _STORED,
        f"heads of {head_dim}": head_dim % 2 or head_dim > _WIDEST_HEAD,
        f"{config.num_attention_heads} heads on {config.num_key_value_heads}": rest
        or group > _MOST_LINES,
        f"{config.num_hidden_layers} layers": config.num_hidden_layers > _MOST_LAYERS,
        f"KV blocks of {block_size}": block_size % _UNIT,
    }
    for what, is_so in refused.items():
        if is_so:
            raise NotLean(f"{what} is not covered")


def _windows(config: Any) -> tuple[int, ...]:
    window = getattr(config, "sliding_window", None) or 0
    types = getattr(config, "layer_types", None)
    if types is None:
        return (window if config.model_type == "mistral" else 0,) * config.num_hidden_layers
    if set(types) - set(_LAYER_TYPES) or ("sliding_attention" in types and not window):
        raise NotLean("its layers' types are not covered")
    return tuple(window if kind == "sliding_attention" else 0 for kind in types)


def _rope(config: Any) -> tuple[tuple[float, ...], float]:
    parameters = getattr(config, "rope_parameters", None) or {}
    kind = parameters.get("rope_type", "default")
    if kind not in _ROPE_TYPES or parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise NotLean(f"rotary embedding of type {kind} is not covered")
    if kind == "default":
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return _default_frequencies(parameters["rope_theta"], dim), 1.0
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, None)
    return tuple(frequencies.tolist()), float(factor)


def _default_frequencies(theta: float, dim: int) -> tuple[float, ...]:
    import torch

    exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    return tuple((1.0 / theta**exponents).tolist())
