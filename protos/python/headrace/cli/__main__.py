"""The command ``headrace``: reads arguments and environment, runs one command, turns failures into exit codes."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import grpc

from headrace.cli.arguments import DEFAULT_TARGET, build_parser
from headrace.cli.batch import batch
from headrace.cli.bench import bench
from headrace.cli.chat import chat
from headrace.cli.exits import (
    BROKEN_PIPE,
    INTERRUPTED,
    NOT_NOW,
    USAGE,
    NothingServed,
    UsageError,
    error_line,
    exit_code,
)
from headrace.cli.generate import attach, generate
from headrace.cli.look import models, status
from headrace.cli.operate import cancel, dead, drain
from headrace.cli.tenants import forget, keys, tenant
from headrace.cli.terminal import Terminal
from headrace.cli.top import top
from headrace.client import Client, HeadraceError, RetryPolicy

COMMANDS: Mapping[str, Callable[[Client, argparse.Namespace, Terminal], int]] = {
    "attach": attach,
    "batch": batch,
    "bench": bench,
    "cancel": cancel,
    "chat": chat,
    "dead": dead,
    "drain": drain,
    "forget": forget,
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
        terminal.note(error_line(error, arguments))
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
        return BROKEN_PIPE


def _run(arguments: argparse.Namespace, terminal: Terminal, environ: Mapping[str, str]) -> int:
    targets = [target.strip() for target in arguments.target.split(",") if target.strip()]
    if not targets:
        raise UsageError("--target names no server")
    key = environ.get("HEADRACE_API_KEY") or None
    # Of many requests a few wait their turn; whoever sits before one answer hears at once that there is none now.
    retry = RetryPolicy(max_attempts=100, budget=1000) if arguments.command == "batch" else None
    with Client(targets, api_key=key, credentials=_credentials(environ), retry=retry) as client:
        return COMMANDS[arguments.command](client, arguments, terminal)


def _credentials(environ: Mapping[str, str]) -> grpc.ChannelCredentials | None:
    """TLS where a CA is named; a certificate of one's own where the server asks for it."""
    if not environ.get("HEADRACE_TLS_CA"):
        return None
    try:
        ca, key, cert = (
            Path(environ[name]).read_bytes() if environ.get(name) else None
            for name in ("HEADRACE_TLS_CA", "HEADRACE_TLS_KEY", "HEADRACE_TLS_CERT")
        )
    except OSError as error:
        raise UsageError(f"HEADRACE_TLS_…: {error}") from error
    return grpc.ssl_channel_credentials(ca, key, cert)


if __name__ == "__main__":
    sys.exit(main())
