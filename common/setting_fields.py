"""One setting: how a field of a settings dataclass is declared, named, read from text and checked.

    queue_limit: int = setting(1000, help="requests that may wait", check=at_least(1))

is read from ``HEADRACE_QUEUE_LIMIT`` and ``--queue-limit``; units live in the field's name.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin

ENV_PREFIX = "HEADRACE_"

Parse = Callable[[str], Any]
Check = Callable[[Any], str | None]
"""What is wrong with a value, or None."""

_KEY = "headrace_setting"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class _Declared:
    """What ``setting`` was told."""

    help: str = ""
    env: str | None = None
    flag: str | None = None
    parse: Parse | None = None
    check: Check | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a settings class, ready to be read."""

    name: str
    env: str
    flag: str
    help: str
    kind: Any
    default: Any
    parse: Parse
    check: Check | None
    secret: bool

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING

    @property
    def is_switch(self) -> bool:
        """Whether the flag may stand alone."""
        return self.kind is bool

    @property
    def is_list(self) -> bool:
        """Whether the flag may be repeated."""
        return get_origin(self.kind) is tuple


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002 - argparse's word for it
    env: str | None = None,
    flag: str | None = None,
    parse: Parse | None = None,
    check: Check | None = None,
    secret: bool = False,
) -> Any:
    """Declare a field; without ``default`` it must be given. ``parse`` raises ValueError on bad text."""
    declared = _Declared(help, env, flag, parse, check, secret)
    return dataclasses.field(default=default, metadata={_KEY: declared})


def settings_of(cls: type) -> Iterator[Setting]:
    """The settings of a dataclass, those of nested settings dataclasses included."""
    kinds = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        kind = _without_none(kinds[item.name])
        if dataclasses.is_dataclass(kind):
            yield from settings_of(typing.cast("type", kind))
            continue
        declared = item.metadata.get(_KEY, _Declared())
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        yield Setting(
            name=item.name,
            env=declared.env or ENV_PREFIX + item.name.upper(),
            flag=declared.flag or "--" + item.name.replace("_", "-"),
            help=declared.help,
            kind=kind,
            default=default,
            parse=declared.parse or parser_of(kind),
            check=declared.check,
            secret=declared.secret,
        )


def parser_of(kind: Any) -> Parse:
    """How text becomes a value of ``kind``: int, float, bool, str, Path, StrEnum or a tuple of these."""
    if get_origin(kind) is tuple:
        item, ellipsis = get_args(kind)
        assert ellipsis is Ellipsis, kind
        parse = parser_of(item)
        return lambda text: tuple(parse(part.strip()) for part in text.split(",") if part.strip())
    if kind is bool:
        return _parse_bool
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return lambda text: _parse_enum(kind, text)
    assert kind in {int, float, str, Path}, f"no parser for {kind}"
    return lambda text: _parse_plain(kind, text)


def choices_of(kind: Any) -> str:
    """What may be given, for the help text."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    if get_origin(kind) is tuple:
        return f"{choices_of(get_args(kind)[0])}[,…]"
    return str(kind.__name__).upper()


def at_least(minimum: float) -> Check:
    """Refuses what is below ``minimum``."""
    return lambda value: (
        None if value >= minimum else f"must be at least {minimum:g}, is {value:g}"
    )


def between(minimum: float, maximum: float) -> Check:
    """Refuses what lies outside the closed range."""
    return lambda value: (
        None
        if minimum <= value <= maximum
        else f"must be between {minimum:g} and {maximum:g}, is {value:g}"
    )


def above(bound: float) -> Check:
    """Refuses what is not greater than ``bound``."""
    return lambda value: None if value > bound else f"must be above {bound:g}, is {value:g}"


port = between(0, 65535)
"""A TCP port; 0 picks a free one."""


def host_and_port(value: str) -> str | None:
    """Refuses what does not say where to dial: ``host:port``, or ``[IPv6]:port``."""
    host, _, number = value.rpartition(":")
    is_host = host.startswith("[") == host.endswith("]") and (
        host.startswith("[") or ":" not in host
    )
    if host and is_host and number.isascii() and number.isdigit() and 0 < int(number) < 65536:
        return None
    return f"{value!r} is not host:port"


def each(check: Check) -> Check:
    """Refuses a list for its first bad item."""
    return lambda values: next(filter(None, map(check, values)), None)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in {Union, types.UnionType}:
        rest = [part for part in get_args(kind) if part is not type(None)]
        assert len(rest) == 1, f"{kind} is ambiguous"
        return rest[0]
    return kind


def _parse_plain(kind: type, text: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {_article(kind)}") from None
    if kind is float and not abs(value) < float("inf"):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _article(kind: type) -> str:
    return "a whole number" if kind is int else "a number"


def _parse_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _parse_enum(kind: type[StrEnum], text: str) -> StrEnum:
    try:
        return kind(text.lower())
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(kind)}") from None
