"""Builds a tokenizer from a GGUF file's metadata.

transformers reads vocabulary and merges from there but not the rule that cuts text before merging
(``tokenizer.ggml.pre``), and so splits digits and the spaces before them differently from the original. Only
rules known here are accepted.
"""

from collections.abc import Callable, Mapping
from typing import Any

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from worker.model.errors import TokenizerRefused

_CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of tokens that are never made from plain text


def _bytes() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_RULES: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _bytes,
    # every digit stands alone, and cuts the text before the byte-level rule sees it
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), _bytes()]
    ),
}


def build_tokenizer(metadata: Mapping[str, object]) -> Any:
    """The tokenizer that ``metadata`` (GGUF keys) describes, with its special tokens and chat template.

    Raises:
        TokenizerRefused: the file's kind of tokenizer is not known here.
    """
    kind, rule = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or rule not in _RULES:
        raise TokenizerRefused(f"GGUF tokenizer {kind!r} with pre-tokenizer {rule!r} is not known")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = _strings(metadata, "tokenizer.ggml.merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],  # type: ignore[misc]  # pairs by construction
        )
    )
    tokenizer.pre_tokenizer = _RULES[str(rule)]()
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, types, strict=True)
            if token_type == _CONTROL_TOKEN
        ]
    )
    return _wrap(tokenizer, tokens, metadata)


def _wrap(tokenizer: Tokenizer, tokens: list[str], metadata: Mapping[str, object]) -> Any:
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(index, int):
            named[f"{name}_token"] = tokens[index]
    wrapper: Any = transformers.PreTrainedTokenizerFast  # untyped
    fast = wrapper(tokenizer_object=tokenizer, **named)
    template = metadata.get("tokenizer.chat_template")
    fast.chat_template = template if isinstance(template, str) else None
    return fast


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    values = metadata.get(key)
    if not isinstance(values, list):
        raise TokenizerRefused(f"the GGUF file has no {key}")
    return values
