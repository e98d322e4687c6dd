"""How much a large message holds, counted before it is parsed: parsing makes an object of each field while everybody waits.

Counting costs time as well, so it pauses for whoever else has something to do, and messages are counted one after the other.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from common.errors import FieldViolation, InvalidRequest

SMALL_BYTES = 64 * 1024
"""What is no longer is parsed at once: at two bytes for the smallest field it takes a few milliseconds."""

MAX_FIELDS = 65_536
"""Of a message and all within it; the longest batch of conversations has fewer."""

MAX_NUMBERS = 1 << 20
"""Of one list of token ids; no context is as long."""

_FIELDS_AT_ONCE = 1024
_VARINT, _BYTES = 0, 2
# Of the other kinds of fields; a group's are counted as if they were its message's.
_LENGTHS = (0, 8, 0, 0, 0, 4)
_CONTINUED = bytes(range(0x80, 0x100))


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A field of a message, by its path; ``within`` are the fields of the message that it holds."""

    path: str
    within: "Mapping[int, _Place] | None" = None
    holds_numbers: bool = False


_UNKNOWN = _Place("request")


@dataclass(slots=True)
class _Count:
    """What was counted of one message."""

    fields: Counter[_Place] = field(default_factory=Counter)
    num_fields: int = 0


class MessageSizes:
    """Looks at one message at a time."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._turn = asyncio.Lock()

    async def check(self, data: bytes, root: Descriptor) -> None:
        """Return if the message may be parsed, or is none, which the parser will say.

        Raises:
            InvalidRequest: it holds more than any that means something.
        """
        async with self._turn:
            for _ in check_in_pieces(data, root):
                await asyncio.sleep(0)


def check_in_pieces(data: bytes, root: Descriptor) -> Iterator[None]:
    """The same; yields now and then.

    Raises:
        InvalidRequest: as above.
    """
    count = _Count()
    # Where each message that is being looked into goes on, where it ends, and its fields.
    open_messages = [(0, len(data), _places(root, ""))]
    try:
        while open_messages:
            at, end, places = open_messages.pop()
            while at < end:
                tag, at = _varint(data, at)
                place = places.get(tag >> 3, _UNKNOWN)
                _note(count, place)
                if count.num_fields % _FIELDS_AT_ONCE == 0:
                    yield
                length, at = _length(data, at, tag & 7)
                if place.within is not None and tag & 7 == _BYTES:
                    open_messages.append((at + length, end, places))
                    end, places = min(at + length, end), place.within
                    continue
                if length > MAX_NUMBERS and place.holds_numbers:
                    _check_numbers(data[at : at + length], place)
                at += length
    except IndexError:
        return


def _length(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """How long what follows a tag is, and where it begins.

    Raises:
        IndexError: it does not lie within the message, or no field is of that kind.
    """
    if kind == _VARINT:
        return 0, _varint(data, at)[1]
    if kind == _BYTES:
        return _varint(data, at)
    return _LENGTHS[kind], at


def _note(count: _Count, place: _Place) -> None:
    count.num_fields += 1
    count.fields[place] += 1
    if count.num_fields > MAX_FIELDS:
        ((most, number),) = count.fields.most_common(1)
        raise _refusal(
            most.path, f"holds {number} and more: a message must have at most {MAX_FIELDS} fields"
        )


def _check_numbers(packed: bytes, place: _Place) -> None:
    # The last byte of each number is below 0x80.
    number = len(packed.translate(None, _CONTINUED))
    if number > MAX_NUMBERS:
        raise _refusal(place.path, f"must hold at most {MAX_NUMBERS} ids, holds {number}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the place behind it.

    Raises:
        IndexError: the message ends before it does, or it is longer than any number.
    """
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise IndexError("no number is as long")


@cache
def _places(message: Descriptor, prefix: str) -> Mapping[int, _Place]:
    """The fields of a message by number; the contract has no message that holds itself."""
    return {one.number: _place(one, prefix + one.name) for one in message.fields}


def _place(one: FieldDescriptor, path: str) -> _Place:
    if one.message_type is not None:
        return _Place(path, _places(one.message_type, f"{path}."))
    return _Place(path, holds_numbers=one.is_repeated and one.cpp_type != one.CPPTYPE_STRING)


def _refusal(path: str, description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation(path, description)])
