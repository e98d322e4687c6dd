"""The text of one sequence behind content filters: what they refuse is never told, and ends it."""

from collections.abc import Sequence

from common.content_filter import ContentFilter, TextGate
from common.logs import get_log
from worker.engine.text_stream import TextDelta, TextStream

_log = get_log(__name__)


class FilteredText:
    """Another text, less what is held back for the filters; it filters what was decided about stop strings."""

    def __init__(self, text: TextStream, filters: Sequence[ContentFilter]) -> None:
        """``filters`` must not be empty."""
        self.bytes_of = text.bytes_of
        self._text = text
        self._gate = TextGate(filters, _tell_failure)

    @property
    def is_refused(self) -> bool:
        """Whether the filters have cut it off."""
        return self._gate.is_shut

    def push(self, token_id: int, *, may_stop: bool) -> TextDelta:
        """Add a token."""
        delta = self._text.push(token_id, may_stop=may_stop)
        return TextDelta(self._gate.push(delta.text), delta.matched_stop)

    def flush(self) -> str:
        """At the end: what was held back and may be told."""
        return self._gate.push(self._text.flush()) + self._gate.flush()


def _tell_failure(name: str, error: Exception) -> None:
    _log.error("content filter failed", filter=name, error=type(error).__name__)
