"""Which models this worker runs: decoders whose attention can be replaced. Others are refused by name."""

from collections.abc import Sequence
from typing import Any

from worker.kv.cache import LayerShape
from worker.model.errors import ModelRefused

_LAYER_TYPES = {"full_attention", "sliding_attention"}
_OTHER_MODALITIES = ("vision_config", "audio_config", "text_config", "speech_config")


def check_config(config: Any) -> None:
    """Refuse what its configuration already shows to be no plain causal decoder.

    Raises:
        ModelRefused: names the architecture and the reason.
    """
    name = _name(config)
    if config.is_encoder_decoder:
        raise ModelRefused(f"{name}: encoder-decoder models are not supported")
    if any(getattr(config, part, None) is not None for part in _OTHER_MODALITIES):
        raise ModelRefused(f"{name}: multi-modal models are not supported")
    if getattr(config, "is_causal", True) is False or getattr(config, "is_decoder", True) is False:
        raise ModelRefused(f"{name}: the model is not causal")
    strange = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    if strange:
        raise ModelRefused(
            f"{name}: layers of type {', '.join(sorted(strange))} are not supported"
        )


def check_model(model: Any) -> None:
    """Refuse a loaded model whose attention cannot be replaced.

    Raises:
        ModelRefused: names the class and the reason.
    """
    name = type(model).__name__
    if getattr(model, "_is_stateful", False):
        raise ModelRefused(f"{name}: recurrent and hybrid models are not supported")
    if not getattr(model, "_supports_attention_backend", False):
        raise ModelRefused(f"{name}: does not support transformers' attention interface")


def check_layers(config: Any, layers: Sequence[LayerShape]) -> None:
    """Refuse a model whose attention layers are not what its configuration announces.

    Raises:
        ModelRefused: a layer is missing, or one that should look back a bounded way did not say how far.
    """
    name = _name(config)
    if len(layers) != config.num_hidden_layers:
        raise ModelRefused(
            f"{name}: {len(layers)} of {config.num_hidden_layers} layers use the attention interface"
        )
    types = getattr(config, "layer_types", None) or ()
    for kind, layer in zip(types, layers, strict=False):
        if (kind == "sliding_attention") != (layer.window is not None):
            raise ModelRefused(f"{name}: a layer of type {kind} has window {layer.window}")


def _name(config: Any) -> str:
    return str((getattr(config, "architectures", None) or [type(config).__name__])[0])
