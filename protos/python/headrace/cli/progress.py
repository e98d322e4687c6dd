"""A progress bar on a terminal; nothing where nobody looks."""

import time
from types import TracebackType
from typing import Self, TextIO

_WIDTH = 30
_INTERVAL_S = 0.1


class Progress:
    """So many of so many, how many of them failed, and how fast they come."""

    def __init__(self, stream: TextIO, total: int, done: int) -> None:
        """``done`` of them were finished before."""
        self._stream = stream
        self._total = total
        self._done = done
        self._num_failed = 0
        self._num_new = 0
        self._began_s = time.monotonic()
        self._shown_s = float("-inf")

    def __enter__(self) -> Self:
        """Show where it begins."""
        self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last state standing."""
        if self._stream.isatty():
            self._show()
            self._stream.write("\n")
            self._stream.flush()

    def count(self, *, is_failed: bool) -> None:
        """One more."""
        self._done += 1
        self._num_new += 1
        self._num_failed += is_failed
        if time.monotonic() - self._shown_s >= _INTERVAL_S:
            self._show()

    def line(self) -> str:
        """What is shown."""
        filled = _WIDTH * self._done // max(1, self._total)
        bar = "#" * filled + "-" * (_WIDTH - filled)
        rate = self._num_new / max(1e-9, time.monotonic() - self._began_s)
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        return f"[{bar}] {self._done}/{self._total}{failed}, {rate:.1f}/s"

    def _show(self) -> None:
        if not self._stream.isatty():
            return
        self._shown_s = time.monotonic()
        self._stream.write(f"\r{self.line()}\x1b[K")
        self._stream.flush()
