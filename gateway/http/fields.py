"""Kinds of JSON fields (text, number, flag …): how each is read and placed in the message, and what its schema says.

The tables made of them in `request_forms` feed the reader, the names in errors, the OpenAPI document and the test of
docs/api.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.http.json_values import (
    read_flag,
    read_integer,
    read_integers,
    read_number,
    read_text,
    read_texts,
)
from gateway.validation.findings import Findings
from headrace.v1 import inference_service_pb2 as pb

UINT32_MAX = 2**32 - 1
INT32_MAX = 2**31 - 1
UINT64_MAX = 2**64 - 1

Schema = Mapping[str, Any]
Read = Callable[[pb.GenerateRequest, Any, str, Findings], None]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is understood. ``path`` is its place in the message, and so its name in errors from inside."""

    read: Read
    path: str
    schema: Schema = field(default_factory=dict)


def integer(path: str, low: int, high: int) -> Field:
    """An integer that its place can hold."""

    def read(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
        number = read_integer(value, name, findings, low, high)
        if number is not None:
            place(request, path, number)

    return Field(read, path, {"type": "integer", "minimum": low, "maximum": high})


def number(path: str) -> Field:
    """A number."""
    return _scalar(path, read_number, NUMBER)


def flag(path: str) -> Field:
    """True or false."""
    return _scalar(path, read_flag, FLAG)


def text(path: str) -> Field:
    """A string."""
    return _scalar(path, read_text, TEXT)


def texts(path: str, most: int) -> Field:
    """A string, or a list of them."""

    def read(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
        found = [value] if isinstance(value, str) else value
        strings = read_texts(found, name, findings, most)
        if strings is not None:
            _target(request, path).extend(strings)

    return Field(read, path, {"anyOf": [TEXT, {"type": "array", "items": TEXT}]})


def integers(path: str, most: int) -> Field:
    """A list of integers, such as token ids."""

    def read(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
        found = read_integers(value, name, findings, most=most)
        if found is not None:
            _target(request, path).extend(found)

    item = {"type": "integer", "minimum": 0, "maximum": UINT32_MAX}
    return Field(read, path, {"type": "array", "items": item})


def place(request: pb.GenerateRequest, path: str, value: Any) -> None:
    """Set the scalar at ``path``."""
    parent, _, name = path.rpartition(".")
    setattr(_target(request, parent) if parent else request, name, value)


def _scalar(path: str, read_value: Callable[[Any, str, Findings], Any], schema: Schema) -> Field:
    def read(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
        found = read_value(value, name, findings)
        if found is not None:
            place(request, path, found)

    return Field(read, path, schema)


def _target(request: pb.GenerateRequest, path: str) -> Any:
    target: Any = request
    for name in path.split("."):
        target = getattr(target, name)
    return target
