"""The text of one sequence: detokenizer, then stop matcher."""

from worker.engine.text_stream import TextDelta
from worker.text.detokenizer import Detokenizer
from worker.text.stop_matcher import StopMatch, StopMatcher


class OutputText:
    """Text that is certain: neither half a character nor, unless asked for, any part of a stop string."""

    def __init__(
        self, detokenizer: Detokenizer, matcher: StopMatcher, *, include_stop: bool
    ) -> None:
        """``include_stop`` keeps the stop string that ended it in the text."""
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._include_stop = include_stop
        self._is_over = False

    def push(self, token_id: int, *, may_stop: bool) -> TextDelta:
        """Add a token."""
        found = self._matcher.push(self._detokenizer.push(token_id), may_stop=may_stop)
        if not isinstance(found, StopMatch):
            return TextDelta(found)
        self._is_over = True
        return TextDelta(found.before + (found.stop if self._include_stop else ""), found.stop)

    def flush(self) -> str:
        """At the end: what was kept back and belongs to the text after all; nothing behind a stop string."""
        if self._is_over:
            return ""
        # What is left of a character may complete nothing: an end is no place to begin a stop.
        found = self._matcher.push(self._detokenizer.flush(), may_stop=False)
        assert isinstance(found, str)
        return found + self._matcher.flush()
