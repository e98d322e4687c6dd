"""JSON as it comes: decoded strictly, and read value by value with a finding for what has another type."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from common.errors import FieldViolation, InvalidRequest
from gateway.validation.findings import Findings

_MAX_SHOWN_CHARS = 64
_MOST_DIGITS = 1000
_MANY_DIGITS = b"0" * _MOST_DIGITS
_EACH_DIGIT_ZERO = bytes(
    ord("0") if chr(byte).isdigit() and byte < 0x80 else byte for byte in range(256)
)
MAX_MEMBERS = 256
"""No object has so many members with names of ours; looking at half a million wrong ones would keep everybody waiting."""


def parse_object(body: bytes) -> dict[str, Any]:
    """The body's object.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    try:
        # A thousand numbers of thousands of digits take a while; the library is slower with a function of ours.
        read_int = _read_short if _MANY_DIGITS in body.translate(_EACH_DIGIT_ZERO) else None
        value = json.loads(body.decode(), parse_constant=_refuse_constant, parse_int=read_int)
    except UnicodeDecodeError as error:
        raise _refusal("must be UTF-8") from error
    except (ValueError, RecursionError) as error:
        # Of a huge number or a deep nesting only that much is told.
        raise _refusal(f"must be JSON: {str(error)[:_MAX_SHOWN_CHARS]}") from error
    if not isinstance(value, dict):
        raise _refusal("must be a JSON object")
    if len(value) > MAX_MEMBERS:
        raise _refusal(f"must hold at most {MAX_MEMBERS} fields")
    return value


def read_text(value: Any, name: str, findings: Findings) -> str | None:
    """A string that can be written in UTF-8, which half of a surrogate pair cannot."""
    if not isinstance(value, str):
        findings.add(name, "must be a string")
        return None
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            findings.add(name, "must be valid Unicode: holds half of a surrogate pair")
            return None
    return value


def read_integer(value: Any, name: str, findings: Findings, low: int, high: int) -> int | None:
    """An integer between the bounds; true and 1.0 are none."""
    if type(value) is not int:
        findings.add(name, "must be an integer")
        return None
    if not low <= value <= high:
        findings.add(name, f"must be at least {low} and at most {high}")
        return None
    return value


def read_number(value: Any, name: str, findings: Findings) -> float | None:
    """A number; its bounds are checked with the request's."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        findings.add(name, "must be a number")
        return None
    try:
        return float(value)
    except OverflowError:
        findings.add(name, "is too large")
        return None


def read_flag(value: Any, name: str, findings: Findings) -> bool | None:
    """True or false."""
    if not isinstance(value, bool):
        findings.add(name, "must be true or false")
        return None
    return value


def read_list(
    value: Any, name: str, findings: Findings, most: int | None = None
) -> list[Any] | None:
    """A list of anything; one of more than ``most`` is not looked into."""
    if not isinstance(value, list):
        findings.add(name, "must be a list")
        return None
    if most is not None and len(value) > most:
        findings.add(name, f"must hold at most {most}, holds {len(value)}")
        return None
    return value


def read_object(
    value: Any,
    name: str,
    findings: Findings,
    known: Sequence[str] | None = None,
    most: int | None = MAX_MEMBERS,
) -> dict[str, Any] | None:
    """An object; of the ``known`` members only, where they are told, and without those that are null.

    One of more than ``most`` is not looked into.
    """
    if not isinstance(value, dict):
        findings.add(name, "must be an object")
        return None
    if most is not None and len(value) > most:
        findings.add(name, f"must hold at most {most}, holds {len(value)}")
        return None
    if known is None:
        return value
    given = {member: item for member, item in value.items() if item is not None}
    for member in given:
        if member not in known:
            findings.add(f"{name}.{shown(member)}", "is not a known field")
    return given


def leave_out(
    value: Any, name: str, findings: Findings, neutral: Mapping[str, Sequence[Any]]
) -> Any:
    """An object without its members of OpenAI's that are not supported: a finding for each whose value asks for something."""
    if not isinstance(value, dict):
        return value
    for member, passing in neutral.items():
        if value.get(member) is not None and value[member] not in passing:
            findings.add(f"{name}.{member}", "is not supported")
    return {member: item for member, item in value.items() if member not in neutral}


def read_integers(
    value: Any, name: str, findings: Findings, high: int = 2**32 - 1, most: int | None = None
) -> list[int] | None:
    """A list of integers from 0 to ``high``; of a long wrong list only the first fault is told."""
    items = read_list(value, name, findings, most)
    # What looks at a hundred thousand does so without a step of Python's for each.
    if items is None or not items:
        return items
    if set(map(type, items)) == {int} and min(items) >= 0 and max(items) <= high:
        return items
    for index, item in enumerate(items):
        if read_integer(item, f"{name}[{index}]", findings, 0, high) is None:
            break
    return None


def read_texts(value: Any, name: str, findings: Findings, most: int) -> list[str] | None:
    """A list of strings."""
    items = read_list(value, name, findings, most)
    if items is None:
        return None
    texts = []
    for index, item in enumerate(items):
        text = read_text(item, f"{name}[{index}]", findings)
        if text is None:
            return None
        texts.append(text)
    return texts


def shown(name: str) -> str:
    """A name from outside as it may be told: short, and printable in UTF-8."""
    return ascii(name[:_MAX_SHOWN_CHARS])[1:-1]


def _read_short(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has at most {_MOST_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _refusal(description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation("body", description)])
