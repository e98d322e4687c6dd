"""What gateways need of a tokenizer: one JSON document, a chat template, the names of special tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from worker.model.errors import TokenizerRefused


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """A tokenizer as data."""

    tokenizer_json: bytes
    chat_template: str
    special_tokens: dict[str, str]
    eos_token_id: int | None


def read_tokenizer(folder: Path) -> TokenizerParts:
    """The checkpoint's tokenizer.

    Raises:
        TokenizerRefused: it has none, or none that the tokenizers library can run.
    """
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False
        )
    except (ValueError, OSError, ImportError, KeyError) as error:
        raise TokenizerRefused(f"{folder}: no tokenizer could be loaded: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        raise TokenizerRefused(f"{type(tokenizer).__name__} cannot be turned into tokenizer.json")
    template = tokenizer.chat_template
    if isinstance(template, dict):  # named templates: the plain one is called "default"
        template = template.get("default")
    return TokenizerParts(
        backend.to_str().encode(),
        template or "",
        {
            name: str(value)
            for name, value in tokenizer.special_tokens_map.items()
            if isinstance(value, str)
        },
        tokenizer.eos_token_id,
    )
