"""JSON as it comes: decoded strictly, and read value by value with a finding for what has another type."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from common.errors import FieldViolation, InvalidRequest
from gateway.validation.findings import Findings

_MAX_SHOWN_CHARS = 64


def parse_object(body: bytes) -> dict[str, Any]:
    """The body's object.

    Raises:
        InvalidRequest: it is no JSON object.
    """
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _refusal("must be UTF-8") from error
    except (ValueError, RecursionError) as error:
        # Of a huge number or a deep nesting only that much is told.
        raise _refusal(f"must be JSON: {str(error)[:_MAX_SHOWN_CHARS]}") from error
    if not isinstance(value, dict):
        raise _refusal("must be a JSON object")
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


def read_list(value: Any, name: str, findings: Findings) -> list[Any] | None:
    """A list of anything."""
    if not isinstance(value, list):
        findings.add(name, "must be a list")
        return None
    return value


def read_object(
    value: Any, name: str, findings: Findings, known: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """An object, of the ``known`` members only."""
    if not isinstance(value, dict):
        findings.add(name, "must be an object")
        return None
    if known is not None:
        for member in value.keys() - set(known):
            findings.add(f"{name}.{shown(member)}", "is not a known field")
    return value


def read_integers(
    value: Any, name: str, findings: Findings, high: int = 2**32 - 1
) -> list[int] | None:
    """A list of integers from 0 to ``high``; of a long wrong list only the first fault is told."""
    items = read_list(value, name, findings)
    if items is None or all(type(item) is int and 0 <= item <= high for item in items):
        return items
    for index, item in enumerate(items):
        if read_integer(item, f"{name}[{index}]", findings, 0, high) is None:
            break
    return None


def read_texts(value: Any, name: str, findings: Findings) -> list[str] | None:
    """A list of strings."""
    items = read_list(value, name, findings)
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


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _refusal(description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation("body", description)])
