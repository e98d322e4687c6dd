"""How a command ends: its exit code, and the one line that says what went wrong."""

import argparse

from headrace.cli.flag_names import in_flags
from headrace.client import HeadraceError

OTHER, USAGE, NOT_FOUND, NOT_NOW, INTERRUPTED = 1, 2, 3, 4, 130
BROKEN_PIPE = 141
"""As a shell tells of a command that a closed pipe ended."""

EXIT_CODES_TEXT = """\
exit codes:
  0    done
  1    any other failure
  2    wrong usage, or refused as it stands (invalid, not implemented, not permitted)
  3    the model, request or worker does not exist
  4    not now: unavailable, queue full, or the deadline passed
  130  interrupted with Ctrl-C
  141  whoever read the output has closed it
"""

_BY_CODE = {
    "INVALID_ARGUMENT": USAGE,
    "OUT_OF_RANGE": USAGE,
    "FAILED_PRECONDITION": USAGE,
    "UNIMPLEMENTED": USAGE,
    "UNAUTHENTICATED": USAGE,
    "PERMISSION_DENIED": USAGE,
    "ALREADY_EXISTS": USAGE,
    "NOT_FOUND": NOT_FOUND,
    "UNAVAILABLE": NOT_NOW,
    "RESOURCE_EXHAUSTED": NOT_NOW,
    "DEADLINE_EXCEEDED": NOT_NOW,
}


class UsageError(Exception):
    """The command cannot be carried out as it was given; says what to give instead."""


class NothingServed(Exception):
    """No model is served, so there is none to choose."""


def exit_code(error: HeadraceError) -> int:
    """The exit code of a failed call."""
    return _BY_CODE.get(error.code, OTHER)


def error_line(error: HeadraceError, arguments: argparse.Namespace) -> str:
    """One line naming code, reason, refused fields and retry advice."""
    targets = arguments.target
    line = in_flags(f"headrace: {error}", error, arguments)
    if error.code == "UNAVAILABLE" and not error.reason:
        # No server said this: nobody listens there.
        line += f"; is a gateway running at {targets}? (--target, HEADRACE_TARGET)"
    if error.code == "UNIMPLEMENTED" and not error.reason:
        # gRPC itself said this: what was asked for is not on that port.
        line += (
            f" at {targets}; a gateway may have a port of its own for operators' calls (--target)"
        )
    stage = error.metadata.get("stage")
    return f"{line}; stage {stage}" if stage and stage not in error.message else line
