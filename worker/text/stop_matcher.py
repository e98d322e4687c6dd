"""Finds stop strings in text that arrives in pieces, and keeps back what may become one.

    text      ... w o r l d \\n U s e r │
    stop                  \\n U s e r :
                          └─ held: the longest end of the text that begins a stop string

The match is the one that is complete first; of several complete at the same character, the longest. So the result does not
depend on how the text was cut into pieces. Each stop string has a Knuth-Morris-Pratt automaton, whose
state is the number of its characters that the text ends with: constant work per character, however the text repeats itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """Text in front of the match that was not given out before, and the stop string."""

    before: str
    stop: str


class StopMatcher:
    """Looks for any of some non-empty strings."""

    def __init__(self, stops: Sequence[str]) -> None:
        """With no stops everything passes through."""
        assert all(stops)
        # The longest first, so that the first complete one is the match.
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._failures = [_failure_table(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> str | StopMatch:
        """Add text: what of it is certain now, or the match, behind which nothing is looked at.

        Without ``may_stop``, complete stop strings are passed over.
        """
        if not self._stops:
            return text
        pending = self._held + text
        for position, char in enumerate(text, len(self._held) + 1):
            stop = self._advance(char)
            if stop is not None and may_stop:
                self._held = ""
                return StopMatch(pending[: position - len(stop)], stop)
        # A complete string that was passed over counts as its longest continuation.
        num_held = max(self._states)
        cut = len(pending) - num_held
        self._held = pending[cut:]
        return pending[:cut]

    def flush(self) -> str:
        """At the end: what was kept back."""
        held, self._held = self._held, ""
        return held

    def _advance(self, char: str) -> str | None:
        complete: str | None = None
        for i, (stop, failure) in enumerate(zip(self._stops, self._failures, strict=True)):
            state = self._states[i]
            while state and stop[state] != char:
                state = failure[state - 1]
            if stop[state] == char:
                state += 1
            if state == len(stop):
                complete = complete or stop
                state = failure[state - 1]
            self._states[i] = state
        return complete


def _failure_table(stop: str) -> list[int]:
    """For each beginning of ``stop``, the length of its longest proper beginning that is also its end."""
    table = [0] * len(stop)
    state = 0
    for i in range(1, len(stop)):
        while state and stop[i] != stop[state]:
            state = table[state - 1]
        if stop[i] == stop[state]:
            state += 1
        table[i] = state
    return table
