"""What the engine asks of a store below the prefix cache."""

from typing import Protocol


class LowerTier(Protocol):
    """Contents of blocks by key; may forget any of them at any time, and never gives another content than was saved."""

    def save(self, key: bytes, content: bytes) -> None:
        """Keep a block, perhaps."""
        ...

    def load(self, key: bytes) -> bytes | None:
        """The block of a key, if it is there and whole."""
        ...
