"""The two files of ``headrace batch``: requests in, answers out, each a line of JSON with the same ``custom_id``."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.cli.exits import UsageError


@dataclass(frozen=True, slots=True)
class Line:
    """One request. ``key`` is the same whenever the same line is run again."""

    custom_id: str
    prompt: Any
    options: dict[str, Any]
    key: str


def read_lines(path: Path) -> Iterator[Line]:
    """The requests, one by one: the file may be larger than memory.

    Raises:
        UsageError: a line is none, and which.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _line(f"{path}:{number}", number, text)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def check(path: Path) -> int:
    """How many requests there are, all of which can be read and tell themselves apart.

    Raises:
        UsageError: they cannot.
    """
    seen: set[str] = set()
    for line in read_lines(path):
        if line.custom_id in seen:
            raise UsageError(f"{path}: custom_id {line.custom_id!r} stands there twice")
        seen.add(line.custom_id)
    return len(seen)


def done_before(path: Path) -> set[str]:
    """What an earlier run has answered; a line that it was in the middle of is cut off the file.

    Raises:
        UsageError: the file is something else.
    """
    if not path.exists():
        return set()
    done: set[str] = set()
    try:
        with path.open("r+b") as file:
            whole = 0
            for text in file:
                if not text.endswith(b"\n"):
                    break
                done.add(str(json.loads(text)["custom_id"]))
                whole += len(text)
            file.truncate(whole)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no output of an earlier run: {error}") from error
    return done


def _line(place: str, number: int, text: str) -> Line:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place}: no JSON: {error}") from error
    if not isinstance(found, dict) or ("prompt" in found) == ("messages" in found):
        raise UsageError(f"{place}: must be an object with prompt or messages")
    custom_id = str(found.pop("custom_id", number))
    prompt = found.pop("messages") if "messages" in found else found.pop("prompt")
    digest = hashlib.sha256(f"{custom_id}\n{text.strip()}".encode()).hexdigest()
    return Line(custom_id, prompt, found, f"batch-{digest[:40]}")
