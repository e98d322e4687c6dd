"""Guesses from a text's own past: what followed the last time that these words came (prompt lookup).

… the wheel of the mill turns … the wheel of
  └─ found: same last tokens ─┘└── the end
                    the mill turns: guessed to follow
"""

from collections.abc import Sequence

_LENGTH = 3
"""Tokens that must be equal: fewer are met by chance, more are met too seldom."""


class PromptLookup:
    """Where each run of tokens of one growing text was seen last; a token costs one entry."""

    def __init__(self) -> None:
        """Nothing is known of the text."""
        self._places: dict[tuple[int, ...], int] = {}
        self._num_seen = _LENGTH

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        """At most ``count`` tokens that may follow ``token_ids``, which only ever grows from call to call."""
        # The run at the end is left out: nothing has followed it yet.
        for end in range(self._num_seen, len(token_ids)):
            self._places[tuple(token_ids[end - _LENGTH : end])] = end
        self._num_seen = max(self._num_seen, len(token_ids))
        place = self._places.get(tuple(token_ids[-_LENGTH:]))
        return [] if place is None else list(token_ids[place : place + count])
