"""The command ``headrace``: reads arguments and environment, runs one command, turns failures into exit codes."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from headrace.cli.arguments import DEFAULT_TARGET, build_parser
from headrace.cli.bench import bench
from headrace.cli.chat import chat
from headrace.cli.exits import (
    INTERRUPTED,
    NOT_NOW,
    OTHER,
    USAGE,
    NothingServed,
    UsageError,
    error_line,
    exit_code,
)
from headrace.cli.generate import attach, generate
from headrace.cli.look import models, status
from headrace.cli.operate import cancel, dead, drain
from headrace.cli.tenants import keys, tenant
from headrace.cli.terminal import Terminal
from headrace.cli.top import top
from headrace.client import Client, HeadraceError

COMMANDS: Mapping[str, Callable[[Client, argparse.Namespace, Terminal], int]] = {
    "attach": attach,
    "bench": bench,
    "cancel": cancel,
    "chat": chat,
    "dead": dead,
    "drain": drain,
    "generate": generate,
    "keys": keys,
    "models": models,
    "status": status,
    "tenant": tenant,
    "top": top,
}


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Runs one command; returns its exit code."""
    parser = build_parser(environ.get("HEADRACE_TARGET") or DEFAULT_TARGET)
    arguments = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a replacement rather than ending the answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    terminal = Terminal(sys.stdin, sys.stdout, sys.stderr)
    try:
        return _run(arguments, terminal, environ)
    except HeadraceError as error:
        terminal.note(error_line(error, arguments.target))
        return exit_code(error)
    except UsageError as error:
        terminal.note(f"headrace: {error}")
        return USAGE
    except NothingServed as error:
        terminal.note(f"headrace: {error}")
        return NOT_NOW
    except KeyboardInterrupt:
        terminal.note("headrace: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OTHER


def _run(arguments: argparse.Namespace, terminal: Terminal, environ: Mapping[str, str]) -> int:
    targets = [target.strip() for target in arguments.target.split(",") if target.strip()]
    if not targets:
        raise UsageError("--target names no server")
    with Client(targets, api_key=environ.get("HEADRACE_API_KEY") or None) as client:
        return COMMANDS[arguments.command](client, arguments, terminal)


if __name__ == "__main__":
    sys.exit(main())
