"""Detokenizing for any other vocabulary: decode a window of tokens, give out what is new.

    prompt's end │ generated ...................│ new
                 │      window: context │ unsaid│
                        text:   "so far"│" and now"

Decoders of this kind look at neighbours: the first word loses its leading space, and byte tokens combine. A few tokens of
context in front of the window (at the beginning: of the prompt) make a word's space appear as it does inside a text.
Characters of byte tokens are certain only when the run of byte tokens ends, because one
invalid byte turns the whole run into U+FFFD; until then they are kept back.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tokenizers import Tokenizer

# Enough for a word in pieces with its neighbour; decoders look no further back than the last visible token.
CONTEXT_TOKENS = 6
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# A text that ends with U+FFFD is kept back, as the next token may mend it, but not for ever.
_MAX_UNSAID_TOKENS = 32


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """Tokens of a vocabulary that need care: ``<0x00>`` to ``<0xFF>``, and those that give no text."""

    byte: frozenset[int]
    unseen: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """The kinds of a tokenizer's tokens."""
        vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder()
        return cls(
            byte=frozenset(i for token, i in vocabulary.items() if _BYTE_TOKEN.fullmatch(token)),
            unseen=frozenset(i for i, token in added.items() if token.special),
        )


class WindowedDetokenizer:
    """Text by difference: decoding of context and new tokens, less what of it was given out."""

    def __init__(self, tokenizer: Tokenizer, kinds: TokenKinds, prompt_end: Sequence[int]) -> None:
        """``prompt_end`` are the prompt's last tokens, ``CONTEXT_TOKENS`` of them or more."""
        self._tokenizer = tokenizer
        self._kinds = kinds
        self._window = list(prompt_end[-CONTEXT_TOKENS:])
        self._num_context = len(self._window)
        self._said = self._decode(self._window)

    def push(self, token_id: int) -> str:
        """Add a token; the characters that became certain."""
        if token_id in self._kinds.unseen:
            return ""  # it does not even end a run of byte tokens
        self._window.append(token_id)
        if token_id in self._kinds.byte:
            return ""
        text = self._decode(self._window)
        num_unsaid = len(self._window) - self._num_context
        if text.endswith("\ufffd") and num_unsaid < _MAX_UNSAID_TOKENS:
            return ""
        return self._say(text)

    def flush(self) -> str:
        """Everything kept back."""
        return self._say(self._decode(self._window))

    def _say(self, text: str) -> str:
        new = text[len(_common_beginning(text, self._said)) :]
        self._window = self._window[-CONTEXT_TOKENS:]
        self._num_context = len(self._window)
        self._said = self._decode(self._window)
        return new

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)


def _common_beginning(text: str, other: str) -> str:
    """What both begin with: all of ``other``, but for decoders that rewrite what they said."""
    if text.startswith(other):
        return other
    length = next(
        (i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b),
        min(len(text), len(other)),
    )
    return text[:length]
