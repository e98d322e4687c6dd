"""What a child prints: into its log file, the last lines in memory, and to stderr if asked."""

import sys
from collections import deque
from pathlib import Path

_TAIL_LINES = 30


class ChildLog:
    """The output of one child, over all its starts."""

    def __init__(self, name: str, path: Path, *, echo: bool) -> None:
        self._prefix = f"[{name}] "
        self._file = path.open("ab", buffering=0)
        self._echo = echo
        self._unfinished = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def tail(self) -> str:
        """The last lines since the last start."""
        return "\n".join(self._tail)

    def begin(self) -> None:
        """A new start: what the last one said no longer counts."""
        self._unfinished = b""
        self._tail.clear()

    def feed(self, chunk: bytes) -> None:
        """Take output as it comes, in pieces of any size."""
        self._file.write(chunk)
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self._tail.append(text)
            if self._echo:
                print(self._prefix + text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """No more output comes."""
        self._file.close()
