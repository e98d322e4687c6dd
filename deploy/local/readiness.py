"""How a child tells that it serves, and where."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deploy.local.child_log import ChildLog

Endpoints = Mapping[str, str]


class Readiness(Protocol):
    """A sign that a child gives; looked for again and again until it is there."""

    def reset(self) -> None:
        """Forget an earlier start's sign."""

    def endpoints(self, log: ChildLog) -> Endpoints | None:
        """Where the child serves, or None as long as it does not."""


@dataclass(frozen=True)
class ReadyFile:
    """The file that every Headrace service writes when it serves."""

    path: Path

    def reset(self) -> None:
        self.path.unlink(missing_ok=True)

    def endpoints(self, log: ChildLog) -> Endpoints | None:
        if not self.path.exists():
            return None
        found: dict[str, str] = json.loads(self.path.read_text())["endpoints"]
        return found


@dataclass(frozen=True)
class ReadyLine:
    """A line in the log, for a program that is not ours."""

    text: str
    known_endpoints: Endpoints = field(default_factory=dict)

    def reset(self) -> None:
        """Nothing to forget: the log starts anew with each start."""

    def endpoints(self, log: ChildLog) -> Endpoints | None:
        return self.known_endpoints if self.text in log.tail else None
