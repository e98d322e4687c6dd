"""What a load test sends: requests from a file, or made up from a seed."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VOCABULARY = (
    "the miller river wheel stone bridge channel water town council engineer visitor farmer brother "
    "repaired watched described measured painted rebuilt admired closed inspected before rain summer "
    "evening without saying word long wooden heavy iron spring flood gate old young every last time"
)
_KNOWN_FIELDS = {"prompt", "messages", "max_tokens"}


class WorkloadError(Exception):
    """A workload file that cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: a prompt, or messages as (role, content), and how many tokens are wanted."""

    prompt: str | Sequence[tuple[str, str]]
    max_tokens: int


def made_up(seed: int, *, prompt_words: int, max_tokens: int) -> Iterator[Asked]:
    """Endlessly many requests, none a prefix of another, with lengths around ``prompt_words``; the same for a seed."""
    rng, vocabulary = random.Random(seed), _VOCABULARY.split()  # noqa: S311 - no secret
    for number in itertools.count():
        length = max(1, rng.randint(prompt_words // 2, prompt_words + prompt_words // 2))
        words = " ".join(rng.choices(vocabulary, k=length))
        yield Asked(f"{number * 37 + seed} notes: {words}", max_tokens)


def from_file(path: Path, default_max_tokens: int) -> Iterator[Asked]:
    """The requests of a file of JSON lines, over and over.

    Each line has ``prompt`` (text) or ``messages`` (a list of ``{"role", "content"}``), and perhaps ``max_tokens``.

    Raises:
        WorkloadError: the file cannot be read, is empty, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise WorkloadError(f"{path}: {error}") from error
    requests = [
        _parse(line, f"{path}:{number}", default_max_tokens)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not requests:
        raise WorkloadError(f"{path} holds no request")
    return itertools.cycle(requests)


def _parse(line: str, place: str, default_max_tokens: int) -> Asked:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise WorkloadError(f"{place}: {error}") from error
    if not isinstance(found, dict) or found.keys() - _KNOWN_FIELDS:
        raise WorkloadError(f"{place}: an object with prompt or messages, and max_tokens")
    max_tokens = found.get("max_tokens", default_max_tokens)
    if not isinstance(max_tokens, int) or max_tokens < 1:
        raise WorkloadError(f"{place}: max_tokens must be a number above 0")
    prompt, messages = found.get("prompt"), found.get("messages")
    if isinstance(prompt, str) and messages is None:
        return Asked(prompt, max_tokens)
    if prompt is None and isinstance(messages, list) and messages:
        return Asked([_message(one, place) for one in messages], max_tokens)
    raise WorkloadError(f"{place}: either prompt, a text, or messages, a list")


def _message(found: Any, place: str) -> tuple[str, str]:
    if isinstance(found, dict) and found.keys() == {"role", "content"}:
        role, content = found["role"], found["content"]
        if isinstance(role, str) and isinstance(content, str):
            return role, content
    raise WorkloadError(f"{place}: a message has role and content, both texts")
