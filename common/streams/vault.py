"""Encryption of what people wrote and models answered, on its way to Redis and back.

``cryptography``'s Fernet with several keys: the first seals, all of them open. Whatever a key opens was sealed with it,
so what was stored before encryption was switched on is still read as it is. What no key opens stays as it was: it does
not decode, and is contained as any damaged record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

_TOKEN_STARTS = b"gAAAA"
"""How each token of Fernet begins; no message of ours does."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """An argument of a script that is to be encrypted, where anything is."""

    content: bytes


class Vault:
    """Seals and opens; without keys everything passes as it is."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        """``keys`` are Fernet's: 32 bytes in URL-safe base64.

        Raises:
            ValueError: one of them is not.
        """
        self._keys = MultiFernet([Fernet(key) for key in keys]) if keys else None

    def seal(self, content: bytes) -> bytes:
        """The content as it is stored; nothing stays nothing."""
        return content if self._keys is None or not content else self._keys.encrypt(content)

    def open(self, stored: bytes) -> bytes:
        """The content of what is stored."""
        if self._keys is None or not stored.startswith(_TOKEN_STARTS):
            return stored
        try:
            return self._keys.decrypt(stored)
        except InvalidToken:
            return stored

    def open_all(self, answer: Any) -> Any:
        """A script's answer, with everything in it opened."""
        if self._keys is None:
            return answer
        if isinstance(answer, list):
            return [self.open_all(item) for item in answer]
        return self.open(answer) if isinstance(answer, bytes) else answer


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one on each line; the first seals.

    Raises:
        ValueError: it holds none, or what is no key.
        OSError: it cannot be read.
    """
    keys = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not keys:
        raise ValueError("holds no key")
    Vault(keys)
    return keys
