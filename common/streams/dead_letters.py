"""Dead letters: requests that were set aside, with their bodies and how each attempt ended (written by ``finish``)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from common import keys
from common.domain import Partition, RequestId
from common.streams.node import Node
from common.streams.scripts import ScriptCall, run_script

_ATTEMPT = re.compile(r"(.*)\t(\d+)\t(\d+)\t([^\t]*)")
# Letters looked at in one script, which keeps the node busy meanwhile.
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Attempt:
    """One dispatch of a request; times by the partition's node, Unix milliseconds."""

    worker_id: str
    dispatched_ms: int
    tokens: int
    outcome: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that was set aside. ``entry_id`` is its place in the stream; ``body`` is read with a single letter only."""

    entry_id: str
    request_id: str
    tenant: str
    reason: str
    budget_ms: int
    attempts: tuple[Attempt, ...]
    body: bytes = b""

    @property
    def died_ms(self) -> int:
        """When it was set aside."""
        return int(self.entry_id.partition("-")[0])


async def read_letters(
    node: Node, partition: Partition, *, start: str, count: int, bound_s: float
) -> list[DeadLetter]:
    """Up to ``count`` letters without their bodies, newest first, from ``start`` on ('+': the newest; '(ID': behind ID).

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    _, letters = await _read(node, partition, start, count, "", bound_s)
    return letters


async def find_letter(node: Node, request_id: RequestId, *, bound_s: float) -> DeadLetter | None:
    """The letter of one request, with its body.

    Raises:
        Unavailable: no definite answer within ``bound_s`` to one of the looks.
    """
    start = "+"
    while True:
        last, found = await _read(
            node, request_id.partition, start, _PAGE, str(request_id), bound_s
        )
        if found or not last:
            return found[0] if found else None
        start = f"({last}"


async def _read(
    node: Node, partition: Partition, start: str, count: int, wanted: str, bound_s: float
) -> tuple[str, list[DeadLetter]]:
    call = ScriptCall("read_dead", [keys.dead(partition)], [start, count, wanted])
    last, *words = cast("list[bytes]", await run_script(node, call, bound_s=bound_s))
    return last.decode(), list(_letters(words))


def _letters(words: Sequence[bytes]) -> Iterator[DeadLetter]:
    place = 0
    while place < len(words):
        entry_id, end = words[place].decode(), place + 2 + int(words[place + 1])
        pairs = iter(words[place + 2 : end])
        yield _letter(entry_id, dict(zip(pairs, pairs, strict=True)))
        place = end


def _letter(entry_id: str, fields: dict[bytes, bytes]) -> DeadLetter:
    return DeadLetter(
        entry_id=entry_id,
        request_id=fields.get(b"id", b"").decode(),
        tenant=fields.get(b"tenant", b"").decode(),
        reason=fields.get(b"reason", b"").decode(),
        budget_ms=int(fields.get(b"budget_ms") or 0),
        attempts=tuple(_attempts(fields.get(b"tries", b"").decode())),
        body=fields.get(b"body", b""),
    )


def _attempts(lines: str) -> Iterator[Attempt]:
    for line in lines.split("\n"):
        # A worker may call itself anything: what does not read as an attempt is no reason to hide the letter.
        match = _ATTEMPT.fullmatch(line)
        if match is not None:
            yield Attempt(match[1], int(match[2]), int(match[3]), match[4])
