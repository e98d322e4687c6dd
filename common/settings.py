"""Reads a service's settings: a frozen dataclass from flags and environment, all errors reported together.

Only a ``__main__`` calls this; everything else gets the finished object. Flags win over environment,
environment over defaults. An empty environment variable counts as unset. A ``HEADRACE_`` name that no
service knows is refused, because a typing error there would otherwise pass silently.
"""

import argparse
import dataclasses
import difflib
import sys
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from common.setting_fields import ENV_PREFIX, Setting, choices_of, settings_of
from common.setting_names import KNOWN_NAMES

T = TypeVar("T")
Described: TypeAlias = "bool | int | float | str | list[Described] | None"
CHECK_FLAG = "--check-settings"
_NO_VALUE = "\0no value"
_REDACTED = "(set)"
# One letter of a short name, a word of a longer one; below it unrelated names begin to look alike.
_NEAR = 0.7
SEE_HELP = "see --help for all settings"


class SettingsError(Exception):
    """Settings were refused; ``problems`` names each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        """``problems`` must not be empty."""
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_settings(
    cls: type[T], argv: Sequence[str], environ: Mapping[str, str], *, prog: str, about: str = ""
) -> T:
    """Build ``cls`` from flags and environment.

    A method ``problems()`` of ``cls``, if there is one, yields what is wrong with fields taken together.

    Raises:
        SettingsError: something is missing, malformed, out of range or unknown.
        SystemExit: ``--help`` was asked for and printed.
    """
    result, problems = read_and_check(cls, argv, environ, prog=prog, about=about)
    if problems:
        raise SettingsError(problems)
    return result


def read_and_check(
    cls: type[T], argv: Sequence[str], environ: Mapping[str, str], *, prog: str, about: str = ""
) -> tuple[T, list[str]]:
    """As far as it can be read, and what is wrong: what cannot be read has its default.

    Raises:
        SystemExit: ``--help`` was asked for and printed.
    """
    settings = list(settings_of(cls))
    names = [item.name for item in settings]
    assert len(set(names)) == len(names), f"{cls.__name__} declares a setting twice: {names}"
    problems: list[str] = []
    flags = _read_flags(settings, argv, problems, prog=prog, about=about)
    problems += _unknown_names(settings, environ)
    values: dict[str, Any] = {}
    for item in settings:
        source, text = _text_of(item, flags, environ)
        _read_one(item, source, text, values, problems)
    result = cast("T", _build(cls, values))
    together = getattr(result, "problems", None)
    if together is not None and not problems:
        problems += cast("Iterable[str]", together())
    return result, problems


def settings_or_exit(
    cls: type[T], argv: Sequence[str], environ: Mapping[str, str], *, prog: str, about: str = ""
) -> T:
    """``read_settings`` for a command: problems go to stderr, one a line, and the exit code is 2.

    With ``--check-settings`` the command ends here either way.
    """
    result, problems = read_and_check(cls, argv, environ, prog=prog, about=about)
    if problems:
        tell_problems(problems, prog)
        raise SystemExit(2)
    if CHECK_FLAG in argv:
        raise SystemExit(0)
    return result


def tell_problems(problems: Sequence[str], prog: str) -> None:
    """One a line, on stderr."""
    lines = [f"{prog}: {problem}" for problem in problems]
    sys.stderr.write("\n".join([*lines, f"{prog}: {SEE_HELP}", ""]))


def describe_settings(settings: object) -> dict[str, Described]:
    """Name and value of each setting, fit for a log: as JSON has them, secrets withheld."""
    found: dict[str, Described] = {}
    secrets = {item.name for item in settings_of(type(settings)) if item.secret}
    for field in dataclasses.fields(cast("Any", settings)):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= describe_settings(value)
        else:
            found[field.name] = _REDACTED if field.name in secrets and value else _described(value)
    return found


def _described(value: object) -> Described:
    if value is None or isinstance(value, bool | int | float):
        return value
    return [_described(item) for item in value] if isinstance(value, tuple) else str(value)


def _read_flags(
    settings: Sequence[Setting],
    argv: Sequence[str],
    problems: list[str],
    *,
    prog: str,
    about: str,
) -> Mapping[str, str]:
    parser = argparse.ArgumentParser(prog, description=about, allow_abbrev=False)
    for item in settings:
        # A missing value is our own error to report beside the others, so argparse accepts it here.
        parser.add_argument(
            item.flag,
            dest=item.name,
            action="append",
            nargs="?",
            const="true" if item.is_switch else _NO_VALUE,
            metavar=choices_of(item.kind),
            help=_help_of(item),
        )
        if item.is_switch:
            off = item.flag.replace("--", "--no-", 1)
            parser.add_argument(
                off, dest=item.name, action="append_const", const="false", help=argparse.SUPPRESS
            )
    parser.add_argument(
        CHECK_FLAG, action="store_true", help="say what is wrong with the settings, and end"
    )
    given, rest = parser.parse_known_args(list(argv))
    problems += [f"{word}: unknown argument" for word in rest]
    return {
        item.name: ",".join(words) if item.is_list else words[-1]
        for item in settings
        if (words := getattr(given, item.name)) is not None
    }


def _help_of(item: Setting) -> str:
    default = "required" if item.required else f"default {_show(item.default)}"
    return f"{item.help} ({default}; {item.env})".replace("%", "%%")


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None or value == "" else str(value)


def _unknown_names(settings: Sequence[Setting], environ: Mapping[str, str]) -> Iterable[str]:
    known = KNOWN_NAMES | {item.env for item in settings}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in known:
            yield f"{name}: no service knows this name" + _suggestion(name, known)


def _suggestion(name: str, known: Collection[str]) -> str:
    """A name that is near enough to be meant; what all names begin with is no likeness."""
    tails = [one.removeprefix(ENV_PREFIX) for one in known]
    close = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), tails, n=1, cutoff=_NEAR)
    return f"; {ENV_PREFIX}{close[0]}?" if close else ""


def _text_of(
    item: Setting, flags: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[str, str | None]:
    if item.name in flags:
        return item.flag, flags[item.name]
    return item.env, environ.get(item.env) or None


def _read_one(
    item: Setting, source: str, text: str | None, values: dict[str, Any], problems: list[str]
) -> None:
    values[item.name] = item.default
    if text is None:
        if item.required:
            problems.append(f"{item.flag} or {item.env} must be given: {item.help}")
        return
    if _NO_VALUE in text:
        problems.append(f"{source}: needs a value")
        return
    try:
        value = item.parse(text)
    except ValueError as error:
        problems.append(f"{source}: {_REDACTED if item.secret else error}")
        return
    complaint = item.check(value) if item.check is not None else None
    if complaint is not None:
        problems.append(f"{source}: {complaint}")
        return
    values[item.name] = value


def _build(cls: type, values: Mapping[str, Any]) -> object:
    kinds = typing.get_type_hints(cls)
    arguments = {
        field.name: _build(kinds[field.name], values)
        if dataclasses.is_dataclass(kinds[field.name])
        else values[field.name]
        for field in dataclasses.fields(cls)
    }
    return cls(**arguments)
