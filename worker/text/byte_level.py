"""Detokenizing for byte-level vocabularies (GPT-2 and its descendants): tokens are bytes, and bytes are UTF-8.

Exact and in constant time per token. A character is given out with the token that brings its last byte. Invalid bytes
become U+FFFD as soon as it is clear that they belong to no character, by the same rule (one for each longest
broken piece) that the tokenizers library uses.
"""

import codecs
from collections.abc import Mapping
from functools import lru_cache

from tokenizers import Tokenizer


class ByteLevelDetokenizer:
    """Bytes of tokens through an incremental UTF-8 decoder."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        """``token_bytes`` comes from ``bytes_of_tokens``; a token that is missing gives no text."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Add a token; the characters it completes."""
        return self._decoder.decode(self._token_bytes.get(token_id, b""))

    def flush(self) -> str:
        """One U+FFFD if the last character is incomplete."""
        return self._decoder.decode(b"", final=True)


def bytes_of_tokens(tokenizer: Tokenizer) -> dict[int, bytes]:
    """What each token of a byte-level vocabulary stands for; special tokens stand for nothing."""
    byte_of_char = _byte_of_char()
    special = {
        added.content for added in tokenizer.get_added_tokens_decoder().values() if added.special
    }
    table: dict[int, bytes] = {}
    for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if token in special:
            continue
        if all(char in byte_of_char for char in token):
            table[token_id] = bytes(byte_of_char[char] for char in token)
        else:
            table[token_id] = token.encode()
    return table


@lru_cache(maxsize=1)
def _byte_of_char() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 characters are their own bytes, the others come from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(others)}
