"""Says what a command waits for, once it has waited long: silence looks as if it hung."""

import threading
from typing import Self

from headrace.cli.terminal import Terminal

AFTER_S = 2.0


class Waiting:
    """One wait at a time; what is over sooner is not spoken of."""

    def __init__(self, terminal: Terminal) -> None:
        """Waits for nothing yet."""
        self._terminal = terminal
        self._timer: threading.Timer | None = None

    def begin(self, what: str, *, before: str = "") -> None:
        """Say ``what`` in a while, unless something else is waited for already; ``before`` goes in front of the line."""
        if self._timer is None:
            note = f"{before}headrace: {what}"
            self._timer = threading.Timer(AFTER_S, self._terminal.note, [note])
            # A command that ends does not wait for it.
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """It has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> Self:
        """Ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self.end()
