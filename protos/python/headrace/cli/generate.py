"""``headrace generate`` and ``headrace attach``: one answer."""

import argparse

from headrace.cli.answer import Answer
from headrace.cli.exits import UsageError
from headrace.cli.options import generation_options, model_and_prompt
from headrace.cli.terminal import Terminal
from headrace.cli.waiting import Waiting
from headrace.client import Client


def generate(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Streams an answer to a prompt."""
    text = _piped(terminal) if arguments.prompt == "-" else arguments.prompt
    with Waiting(terminal) as waiting:
        waiting.begin(f"looking for a gateway at {arguments.target}")
        model, prompt = model_and_prompt(client, arguments, text)
    options = generation_options(arguments, model)
    try:
        stream = client.stream(prompt, timeout_s=arguments.timeout, **options)
    except (ValueError, UnicodeError) as error:
        # Undecodable text cannot even be put into a request.
        raise UsageError(str(error)) from error
    answer = Answer(terminal, stream, stats=arguments.stats, target=arguments.target)
    answer.show()
    if arguments.json:
        terminal.line(answer.facts())
    return 0


def _piped(terminal: Terminal) -> str:
    try:
        return terminal.read_all()
    except UnicodeError as error:
        raise UsageError(f"the prompt on standard input is no text: {error}") from error


def attach(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Follows a request that was accepted earlier."""
    stream = client.attach(arguments.request_id, arguments.from_seq, timeout_s=arguments.timeout)
    answer = Answer(terminal, stream, stats=arguments.stats, target=arguments.target)
    answer.show()
    if arguments.json:
        terminal.line(answer.facts())
    return 0
