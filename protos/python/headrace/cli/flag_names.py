"""Which flag gave a refused field: whoever typed a command knows its flags, and not the messages behind them."""

import argparse
import re

from headrace.client import HeadraceError

_COMMANDS = ("generate", "chat", "attach")
"""Their arguments are called as the fields that they fill."""
_NAMES = {
    "include_stop_in_output": "--include-stop",
    "prompt": "PROMPT",
    "request_id": "ID",
    "stop_token_ids": "--stop-token-id",
}


def in_flags(line: str, error: HeadraceError, arguments: argparse.Namespace) -> str:
    """The line that tells of ``error``, with flags in place of the fields that they gave."""
    if arguments.command not in _COMMANDS:
        return line
    for violation in error.field_violations:
        flag = flag_of(violation.field, arguments)
        if flag is not None:
            line = re.sub(rf"(?<![\w.]){re.escape(violation.field)}(?=:)", flag, line)
    return line


def flag_of(path: str, arguments: argparse.Namespace) -> str | None:
    """The argument that gave a field of the request, with the place in it; None where none did."""
    for part in reversed(path.split(".")):
        name, bracket, place = part.partition("[")
        if getattr(arguments, name, None) is not None:
            flag = _NAMES.get(name, f"--{name.replace('_', '-')}")
            return flag + (bracket + place if flag.startswith("--") else "")
    return None
