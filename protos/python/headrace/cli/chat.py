"""``headrace chat``: a conversation. Ctrl-C stops an answer, Ctrl-D ends it."""

import argparse
import contextlib

from headrace.cli.answer import Answer
from headrace.cli.exits import error_line, exit_code
from headrace.cli.options import generation_options, only_model
from headrace.cli.terminal import Terminal
from headrace.client import Client, HeadraceError


def chat(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Reads lines and answers them until the input ends."""
    model = str(arguments.model or only_model(client).name)
    conversation: list[dict[str, str]] = []
    if arguments.system:
        conversation.append({"role": "system", "content": arguments.system})
    interactive = terminal.input.isatty()
    if interactive:
        terminal.note(
            f"Talking with {model}. Ctrl-C stops an answer, Ctrl-D ends the conversation."
        )
    code = 0
    while (text := _read(terminal, interactive=interactive)) is not None:
        if text.strip():
            code = _exchange(client, arguments, terminal, model, conversation, text)
        if code and not interactive:
            return code
    return 0


def _exchange(
    client: Client,
    arguments: argparse.Namespace,
    terminal: Terminal,
    model: str,
    conversation: list[dict[str, str]],
    text: str,
) -> int:
    """One question and its answer; a failed one leaves the conversation as it was."""
    question = {"role": "user", "content": text}
    options = generation_options(arguments, model)
    try:
        stream = client.stream([*conversation, question], timeout_s=arguments.timeout, **options)
        answer = Answer(terminal, stream, stats=arguments.stats, target=arguments.target)
        try:
            answer.show()
        except KeyboardInterrupt:
            # What was said until then stays said; the next question may refer to it.
            terminal.note("(stopped)")
    except HeadraceError as error:
        terminal.note(error_line(error, arguments))
        return exit_code(error)
    except (ValueError, UnicodeError) as error:
        terminal.note(f"headrace: {error}")
        return 2
    if answer.text:
        # Stopped before its first word, it is as if it had never been asked.
        conversation += [question, {"role": "assistant", "content": answer.text}]
    return 0


def _read(terminal: Terminal, *, interactive: bool) -> str | None:
    """The next line; None at the end of the input."""
    if not interactive:
        line = terminal.input.readline()
        return line.removesuffix("\n") if line else None
    with contextlib.suppress(ImportError):
        # Gives ``input`` line editing and history on a terminal, where the platform has it.
        import readline  # noqa: F401
    while True:
        try:
            return input("> ")
        except EOFError:
            terminal.line()
            return None
        except KeyboardInterrupt:
            terminal.note("\n(Ctrl-D ends the conversation)")
