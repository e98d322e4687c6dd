"""Guesses from a text's own past: what followed the last time that these words came (prompt lookup).

… the wheel of the mill turns … the wheel of
  └─ found: same last tokens ─┘└── the end
                    the mill turns: guessed to follow
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from worker.engine.sequence import Sequence as Text

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


class LookupProposer:
    """Guesses for the texts of an engine, each from its own past."""

    kind = "lookup"
    pool = None

    def __init__(self) -> None:
        """No text has been seen."""
        self._lookups: WeakKeyDictionary[Text, PromptLookup] = WeakKeyDictionary()
        self._found: dict[Text, list[int]] = {}

    def ready(self, wanted: "Mapping[Text, int]") -> "dict[Text, int]":
        """As ``Proposer``: as many as follow in the text."""
        self._found = {}
        for text, count in wanted.items():
            lookup = self._lookups.setdefault(text, PromptLookup())
            if found := lookup.propose(text.token_ids, count):
                self._found[text] = found
        return {text: len(found) for text, found in self._found.items()}

    def propose(self, counts: "Mapping[Text, int]") -> "dict[Text, list[int]]":
        """As ``Proposer``."""
        return {text: self._found[text][:count] for text, count in counts.items()}

    def guess_s(self, num_texts: int) -> float:
        """As ``Proposer``: looking up takes no time that counts."""
        return 0.0

    def retain(self, texts: "Iterable[Text]") -> None:
        """As ``Proposer``: what was found in the last step is not needed any more."""
        self._found = {}
