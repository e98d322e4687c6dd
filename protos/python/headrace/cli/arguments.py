"""The command line's grammar: what may be said, and what it means when it is left out."""

import argparse
from importlib.metadata import version
from typing import TYPE_CHECKING

from headrace.cli.aliases import add_aliases
from headrace.cli.bench_arguments import add_bench
from headrace.cli.exits import EXIT_CODES_TEXT
from headrace.cli.flag_values import grace, seconds, whole
from headrace.cli.generation_arguments import add_generation, add_request

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_TARGET = "localhost:50051"


def build_parser(target: str) -> argparse.ArgumentParser:
    """The parser; ``target`` is the server when none is named."""
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="Generate text with Headrace, and look after what runs.",
        epilog=EXIT_CODES_TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {version('headrace')}")
    _add_target(parser, target)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_generate(commands)
    _add_chat(commands)
    add_aliases(
        _command(
            commands, "models", "list the models that can be asked for, or say what names mean"
        )
    )
    _add_requests(commands)
    _add_operations(commands)
    add_bench(_command(commands, "bench", "measure throughput and latency under load"))
    _add_tenants(commands)
    _add_batch(commands)
    for command in commands.choices.values():
        _add_target_behind(command)
    return parser


def _command(commands: "Commands", name: str, what: str) -> argparse.ArgumentParser:
    """A command that says the same of itself in the list and in its own help."""
    return commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")


def _add_target_behind(command: argparse.ArgumentParser) -> None:
    """Also behind the command and its actions; what is not said there does not undo what was said before."""
    _add_target(command, argparse.SUPPRESS)
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _add_target_behind(inner)


def _add_target(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--target",
        default=default,
        metavar="HOST:PORT",
        help=f"the gateway; several, separated by commas, stand in for each other (default: HEADRACE_TARGET, else {DEFAULT_TARGET})",
    )


def _add_generate(commands: "Commands") -> None:
    generate = _command(commands, "generate", "stream an answer to a prompt")
    generate.add_argument("prompt", metavar="PROMPT", help="the prompt; - reads standard input")
    add_generation(generate)
    add_request(generate)
    form = generate.add_mutually_exclusive_group()
    form.add_argument(
        "--chat",
        dest="chat",
        action="store_true",
        default=None,
        help="send the prompt as a chat message (default if the model has a chat template)",
    )
    form.add_argument(
        "--raw", dest="chat", action="store_false", help="send the prompt as plain text"
    )
    generate.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    generate.add_argument(
        "--json", action="store_true", help="after the answer, print its facts as one line of JSON"
    )
    _add_stats(generate)


def _add_chat(commands: "Commands") -> None:
    chat = commands.add_parser(
        "chat",
        help="talk with a model",
        description="Talk with a model. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    chat.add_argument("--system", metavar="TEXT", help="a system message before everything")
    add_generation(chat)
    _add_stats(chat)


def _add_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v",
        "--verbose",
        "--stats",
        dest="stats",
        action="store_true",
        help="print request id, trace id, token usage, queue time and time to first token to standard error",
    )


def _add_requests(commands: "Commands") -> None:
    status = _command(commands, "status", "show queues and workers, or one request")
    status.add_argument("request_id", nargs="?", metavar="REQUEST_ID")
    top = _command(commands, "top", "watch queues and workers, until Ctrl-C")
    top.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="between frames (default: 1)",
    )
    top.add_argument(
        "--frames",
        type=whole(0, 32),
        default=0,
        metavar="N",
        help="end after so many (default: never)",
    )
    cancel = _command(commands, "cancel", "cancel a request")
    cancel.add_argument("request_id", metavar="REQUEST_ID")
    cancel.add_argument("--reason", default="", metavar="TEXT", help="for the server's log")
    attach = _command(commands, "attach", "follow a request that was accepted earlier")
    attach.add_argument("request_id", metavar="REQUEST_ID")
    attach.add_argument(
        "--from-seq",
        type=whole(0, 64),
        default=0,
        metavar="N",
        help="first token wanted (default: 0)",
    )
    attach.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="longest time to follow"
    )
    attach.add_argument(
        "--json", action="store_true", help="after the answer, print its facts as one line of JSON"
    )
    _add_stats(attach)


def _add_operations(commands: "Commands") -> None:
    drain = _command(commands, "drain", "let a worker finish, and take no new work")
    drain.add_argument("worker_id", metavar="WORKER")
    drain.add_argument(
        "--grace",
        type=grace,
        metavar="SECONDS",
        help="how long running requests may take; then they move to other workers",
    )
    dead = _command(commands, "dead", "look at requests that were set aside")
    actions = dead.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _command(actions, "list", "list them, newest first")
    listing.add_argument("--model", default="", help="only of this model")
    show = _command(actions, "show", "show one with its history")
    show.add_argument("request_id", metavar="REQUEST_ID")
    replay = _command(actions, "replay", "run one again as a new request")
    replay.add_argument("request_id", metavar="REQUEST_ID")


def _add_tenants(commands: "Commands") -> None:
    keys = _command(commands, "keys", "issue, list and revoke API keys")
    actions = keys.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _command(actions, "create", "issue a key, and print its secret this once")
    create.add_argument("tenant", metavar="TENANT")
    create.add_argument("--description", default="", metavar="TEXT", help="for people")
    create.add_argument(
        "--days", type=whole(1, 16), metavar="N", help="how long it holds (default: for ever)"
    )
    listing = _command(actions, "list", "list keys, without their secrets")
    listing.add_argument("tenant", nargs="?", default="", metavar="TENANT")
    revoke = _command(actions, "revoke", "take a key back")
    revoke.add_argument("key_id", metavar="KEY_ID")
    tenant = _command(commands, "tenant", "set and show what a tenant may do")
    actions = tenant.add_subparsers(dest="action", required=True, metavar="ACTION")
    limits = _command(actions, "set", "set a tenant's limits, in the place of all former ones")
    limits.add_argument("tenant", metavar="TENANT")
    limits.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="NAME",
        help="may use this one; may be given again (default: all)",
    )
    limits.add_argument("--highest-priority", choices=["batch", "normal", "high", "critical"])
    limits.add_argument("--weight", type=float, metavar="X", help="share of the machine")
    for limit in ("requests-per-minute", "tokens-per-minute", "concurrent-requests"):
        limits.add_argument(f"--{limit}", type=whole(0, 53), metavar="N")
    forget = _command(commands, "forget", "delete what is stored about requests")
    which = forget.add_mutually_exclusive_group(required=True)
    which.add_argument("request_id", nargs="?", default="", metavar="REQUEST_ID")
    which.add_argument("--request", default="", metavar="REQUEST_ID", help="the same by name")
    which.add_argument("--tenant", default="", metavar="TENANT", help="all requests of a tenant")
    show = _command(actions, "show", "show a tenant's limits and what it uses of them")
    show.add_argument("tenant", metavar="TENANT")


def _add_batch(commands: "Commands") -> None:
    batch = _command(
        commands, "batch", "run many requests from a file, and go on where it stopped"
    )
    batch.add_argument(
        "source",
        metavar="IN.jsonl",
        help="one request a line: {prompt or messages, custom_id, options}",
    )
    batch.add_argument("target_file", metavar="OUT.jsonl", help="one answer a line, as they come")
    batch.add_argument("--model", help="of lines that name none (default: the only one served)")
    batch.add_argument(
        "--concurrency", type=whole(1, 10), default=16, metavar="N", help="requests at once"
    )
    batch.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="longest time of each request"
    )
