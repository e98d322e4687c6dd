"""The text of one sequence: detokenizer, then stop matcher."""

from collections.abc import Callable

from worker.engine.text_stream import TextDelta
from worker.text.detokenizer import Detokenizer
from worker.text.stop_matcher import StopMatch, StopMatcher


class OutputText:
    """Text that is certain: neither half a character nor, unless asked for, any part of a stop string."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        matcher: StopMatcher,
        bytes_of: Callable[[int], bytes],
        *,
        include_stop: bool,
        preface: str = "",
    ) -> None:
        """``include_stop`` keeps the stop string that ended it in the text.

        ``preface`` is text in front of all other, in which no stop string is looked for.
        """
        self.bytes_of = bytes_of
        self.is_refused = False
        self._preface = preface
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._include_stop = include_stop
        self._is_over = False

    def push(self, token_id: int, *, may_stop: bool) -> TextDelta:
        """Add a token."""
        preface, self._preface = self._preface, ""
        found = self._matcher.push(self._detokenizer.push(token_id), may_stop=may_stop)
        if not isinstance(found, StopMatch):
            return TextDelta(preface + found)
        self._is_over = True
        stop = found.stop if self._include_stop else ""
        return TextDelta(preface + found.before + stop, found.stop)

    def flush(self) -> str:
        """At the end: what was kept back and belongs to the text after all; nothing behind a stop string."""
        if self._is_over:
            return ""
        # What is left of a character may complete nothing: an end is no place to begin a stop.
        found = self._matcher.push(self._detokenizer.flush(), may_stop=False)
        assert isinstance(found, str)
        return self._preface + found + self._matcher.flush()
