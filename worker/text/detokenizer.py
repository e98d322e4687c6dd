"""What every way of turning tokens into text offers."""

from typing import Protocol


class Detokenizer(Protocol):
    """One sequence's text; deltas and ``flush`` together equal the decoding of all tokens at once."""

    def push(self, token_id: int) -> str:
        """Add a token; the characters that no later token can change."""
        ...

    def flush(self) -> str:
        """At the end: the rest, with U+FFFD for bytes that came to no character."""
        ...
