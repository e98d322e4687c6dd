"""How much JSON a large body holds, counted before it is parsed: parsing makes an object of each value while everybody waits."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from common.errors import FieldViolation, InvalidRequest

MAX_VALUES = 200_000
"""In all lists and objects of a body: the token ids of a prompt, as long as contexts are."""

MAX_NAMES = 65_536
"""Members of all objects of a body."""

MAX_CONTAINERS = 16_384
"""Lists and objects of a body: the messages of a long batch."""

_SMALL_BYTES = 64 * 1024
_BYTES_AT_ONCE = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Signs:
    """What stands between values, and begins lists and objects."""

    commas: int = 0
    colons: int = 0
    brackets: int = 0

    @classmethod
    def of(cls, text: bytes) -> Self:
        """Those of a text."""
        brackets = text.count(b"[") + text.count(b"{")
        return cls(text.count(b","), text.count(b":"), brackets)

    def and_of(self, text: bytes) -> "_Signs":
        """These, and those of a text."""
        more = _Signs.of(text)
        return _Signs(
            self.commas + more.commas, self.colons + more.colons, self.brackets + more.brackets
        )

    @property
    def are_too_many(self) -> bool:
        return (
            self.commas >= MAX_VALUES or self.colons > MAX_NAMES or self.brackets > MAX_CONTAINERS
        )


class JsonSizes:
    """Looks at one body at a time."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._turn = asyncio.Lock()

    async def check(self, body: bytes) -> None:
        """Return if the body may be parsed, or is no JSON, which the parser will say.

        Raises:
            InvalidRequest: it holds more than any request does.
        """
        # Signs within texts are counted at first, too: most bodies have few even so.
        if len(body) <= _SMALL_BYTES or not _Signs.of(body).are_too_many:
            return
        async with self._turn:
            for _ in check_in_pieces(body):
                await asyncio.sleep(0)


def check_in_pieces(body: bytes) -> Iterator[None]:
    """Count what is outside of strings; yields now and then.

    Raises:
        InvalidRequest: as above.
    """
    # Without what is escaped every second quote ends a string.
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    signs, inside = _Signs(), 0
    for at in range(0, len(text), _BYTES_AT_ONCE):
        parts = text[at : at + _BYTES_AT_ONCE].split(b'"')
        signs = signs.and_of(b"".join(parts[inside::2]))
        inside = (inside + len(parts) - 1) % 2
        if signs.are_too_many:
            raise _refusal()
        yield


def _refusal() -> InvalidRequest:
    rule = (
        f"must hold at most {MAX_VALUES} values, {MAX_NAMES} members of objects,"
        f" and {MAX_CONTAINERS} lists and objects"
    )
    return InvalidRequest([FieldViolation("body", rule)])
