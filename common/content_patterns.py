"""The content filter that comes with Headrace: regular expressions from a file.

hold_back = 64                     # no forbidden passage is longer; default 128
patterns = ['(?i)\\bsecret plan\\b', '\\b\\d{3}-\\d{2}-\\d{4}\\b']
"""

import hashlib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

_HOLD_BACK = 128
_MAX_HOLD_BACK = 4096


class PatternFilter:
    """Refuses what matches any of some expressions."""

    name = "patterns"

    def __init__(self, patterns: Sequence[str], hold_back: int = _HOLD_BACK) -> None:
        """``hold_back``: most characters of a match, with what it looks at around it.

        Raises:
            ValueError: an expression cannot be used.
        """
        if not 1 <= hold_back <= _MAX_HOLD_BACK:
            raise ValueError(f"hold_back must be 1 to {_MAX_HOLD_BACK}")
        self.hold_back = hold_back
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self.identity = hashlib.sha256(repr((hold_back, *patterns)).encode()).hexdigest()[:16]

    def find(self, text: str, start: int) -> int | None:
        """Where the first match begins."""
        found = (pattern.search(text, start) for pattern in self._patterns)
        return min((match.start() for match in found if match is not None), default=None)


def from_file(path: str) -> PatternFilter:
    """The filter that a file describes; the entry point.

    Raises:
        ValueError: it cannot be read, or what it says cannot be used.
    """
    try:
        content = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(str(error)) from error
    patterns, hold_back = content.pop("patterns", None), content.pop("hold_back", _HOLD_BACK)
    if content:
        raise ValueError(f"{', '.join(content)}: not known")
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise ValueError("patterns must be a list of regular expressions")
    if not isinstance(hold_back, int):
        raise ValueError("hold_back must be a number of characters")
    return PatternFilter(patterns, hold_back)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern}: {error}") from error
    if compiled.search("") is not None:
        raise ValueError(f"{pattern}: matches the empty text, so it would refuse everything")
    return compiled
