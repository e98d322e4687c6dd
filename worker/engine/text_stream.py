"""What the engine asks of text (`worker.text` does it): which characters each token makes certain, and whether a stop string is complete."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Characters that one token made certain, and the stop string that it completed, if it did."""

    text: str = ""
    matched_stop: str | None = None


class TextStream(Protocol):
    """The text of one sequence; a pure function of the tokens pushed, however they are spread over steps."""

    def push(self, token_id: int, *, may_stop: bool) -> TextDelta:
        """Add a token. Without ``may_stop`` a complete stop string is ordinary text."""
        ...

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token stands for, in whatever text."""
        ...

    @property
    def is_refused(self) -> bool:
        """Whether a content filter cut the text off; what is pushed behind that is not told."""
        ...

    def flush(self) -> str:
        """At the end: what was held back for a character or a stop string that did not come."""
        ...
