"""The audit log: who asked for what, how large it was and what was decided, one JSON object a line. The text where it is asked for only.

The file is only ever appended to, each line in one write, so that several gateways may share it and a rotation that
copies and truncates loses nothing that was read.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from common.logs import Log

_MAX_CHARS = 256
Fact = str | int | None


class AuditLog:
    """Appends between ``__enter__`` and ``__exit__``; without a path it does nothing."""

    def __init__(self, path: Path | None, log: Log) -> None:
        """``log`` hears of lines that could not be written: serving goes on, and an alert is due."""
        self._path = path
        self._log = log
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Open the file, readable for its owner alone (OSError: it cannot be)."""
        if self._path is not None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(
        self, event: str, content: Mapping[str, str] | None = None, /, **facts: Fact
    ) -> None:
        """One line; facts that are empty are left out. ``content`` is what people wrote and were answered, uncut."""
        if self._file is None:
            return
        cut = {
            name: fact[:_MAX_CHARS] if isinstance(fact, str) else fact
            for name, fact in facts.items()
            if fact not in (None, "")
        }
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = (
            json.dumps({"time": time, "event": event, **cut, **(content or {})}).encode() + b"\n"
        )
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._log.error("audit line lost", error=str(error), audited=event)
            return
        if written != len(line):
            self._log.error("audit line cut", audited=event)
