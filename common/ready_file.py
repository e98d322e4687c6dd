"""The ready file: exists while the service serves, and says where."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self


class ReadyFile:
    """Written whole or not at all; removed on exit. Without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        """``path`` lies in a folder that exists."""
        self._path = path

    def __enter__(self) -> Self:
        """Remove what a killed predecessor left, which would name ports that are dead."""
        self._remove()
        return self

    def write(self, service: str, endpoints: Mapping[str, str]) -> None:
        """Say that ``service`` serves at ``endpoints``."""
        if self._path is None:
            return
        content = {"service": service, "endpoints": dict(endpoints), "pid": os.getpid()}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
        draft.replace(self._path)

    def __exit__(self, *_: object) -> None:
        """Remove the file."""
        self._remove()

    def _remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
