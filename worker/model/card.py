"""Writes the model card from what was loaded."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.grammars import CAPABILITY, is_available
from common.model_card import ModelCard
from worker.engine.model_settings import ModelSettings
from worker.kv.cache import LayerShape
from worker.model.stored import stored_quantization
from worker.model.tokenizer import TokenizerParts

_DEFAULT_MAX_TOKENS = 256


def make_card(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    tokenizer: TokenizerParts,
    *,
    layers: Sequence[LayerShape],
    revision: str,
    fingerprint: str,
    context_tokens: int,
    kv_capacity_tokens: int,
) -> ModelCard:
    """The card of a loaded model."""
    generation = _generation_config(folder)
    defaults = generation if generation.get("do_sample") else {}
    stored = stored_quantization(config)
    windows = {layer.window for layer in layers}
    return ModelCard(
        model=settings.served_model_name or settings.model.rstrip("/").rsplit("/", 1)[-1],
        revision=revision,
        architecture=(config.architectures or [type(config).__name__])[0],
        quantization=stored.name if stored else settings.storage.value,
        context_tokens=context_tokens,
        vocab_size=config.vocab_size,
        tokenizer_json=tokenizer.tokenizer_json,
        chat_template=tokenizer.chat_template,
        special_tokens=tokenizer.special_tokens,
        eos_token_ids=_eos_token_ids(generation, config, tokenizer),
        default_max_tokens=min(
            generation.get("max_new_tokens") or _DEFAULT_MAX_TOKENS, context_tokens
        ),
        kv_capacity_tokens=kv_capacity_tokens,
        fingerprint=fingerprint,
        kv_block_tokens=settings.block_size,
        max_seqs=settings.max_seqs,
        capabilities=(CAPABILITY,) if is_available() else (),
        # Blocks may be given back only where no layer looks further: one full layer keeps them all.
        sliding_window=0 if None in windows else max(w for w in windows if w is not None),
        default_temperature=defaults.get("temperature"),
        default_top_p=defaults.get("top_p"),
        default_top_k=defaults.get("top_k"),
    )


def _generation_config(folder: Path) -> dict[str, Any]:
    """The file as written, because defaults that transformers fills in are not the model's own."""
    path = folder / "generation_config.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _eos_token_ids(
    generation: dict[str, Any], config: Any, tokenizer: TokenizerParts
) -> tuple[int, ...]:
    for found in (generation.get("eos_token_id"), config.eos_token_id, tokenizer.eos_token_id):
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    return ()
