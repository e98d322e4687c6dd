"""What a content policy is to the services: filters over text, and the gate that holds text back for them.

    text       ... already let out │ held: the last `hold_back` characters │
    context    └─ hold_back ───────┘
    a filter   finds where the first forbidden passage begins; what is more than `hold_back` from the end is settled

A passage counts once so much text stands behind its beginning that nothing which follows can change the verdict, or at
the end. So the result does not depend on how the text was cut into pieces, and a run that was interrupted ends as one
that was not.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

CAPABILITY = "output_filter"
"""What a card says whose workers filter what they generate."""


class ContentFilter(Protocol):
    """A plug-in: a pure function over text. Whatever it looks at around a passage lies within ``hold_back`` characters."""

    @property
    def name(self) -> str:
        """For refusals, logs and metrics."""
        ...

    @property
    def identity(self) -> str:
        """Changes whenever the filter may judge otherwise: a request goes on only where it is judged alike."""
        ...

    @property
    def hold_back(self) -> int:
        """Longest forbidden passage, in characters; at least 1."""
        ...

    def find(self, text: str, start: int) -> int | None:
        """Where the first forbidden passage begins, at or behind ``start``; what lies before is context."""
        ...


def first_refusal(filters: Sequence[ContentFilter], text: str) -> str | None:
    """The name of a filter that refuses a whole text, if one does."""
    return next((one.name for one in filters if one.find(text, 0) is not None), None)


class TextGate:
    """Lets one text through, piece by piece, up to the first forbidden passage."""

    def __init__(
        self, filters: Sequence[ContentFilter], on_failure: Callable[[str, Exception], None]
    ) -> None:
        """``on_failure`` hears of a filter that fails, and why: the gate shuts then, because nobody knows better."""
        self._filters = filters
        self._on_failure = on_failure
        self._span = max(one.hold_back for one in filters)
        self._text = ""
        self._num_out = 0
        self.is_shut = False
        """Whether something forbidden was met: nothing comes through any more."""

    def push(self, text: str) -> str:
        """Add text: what of it may be told now."""
        self._text += text
        return self._let_out(len(self._text) - self._span)

    def flush(self) -> str:
        """At the end: what was held back, as far as it may be told."""
        return self._let_out(len(self._text))

    def _let_out(self, settled: int) -> str:
        if self.is_shut or settled <= self._num_out:
            return ""
        found = self._find()
        if found is not None and found < settled:
            self.is_shut = True
            settled = found
        out = self._text[self._num_out : settled]
        forgotten = max(0, settled - self._span)
        self._text, self._num_out = self._text[forgotten:], settled - forgotten
        return out

    def _find(self) -> int | None:
        places: list[int] = []
        for one in self._filters:
            try:
                place = one.find(self._text, self._num_out)
            except Exception as error:  # noqa: BLE001 - a plug-in's: told, and taken for a refusal
                self._on_failure(one.name, error)
                return self._num_out
            if place is not None:
                places.append(max(place, self._num_out))
        return min(places, default=None)
