"""From parsed arguments to a request: which model, which options, which form of prompt."""

import argparse

from headrace.cli.constraint_arguments import constraint_of
from headrace.cli.exits import NothingServed, UsageError
from headrace.cli.generation_arguments import OPTION_NAMES, output_of
from headrace.client import Client, GenerateOptions, PromptLike
from headrace.v1 import inference_service_pb2 as pb


def only_model(client: Client) -> pb.Model:
    """The model that is meant when none is named: the only one with workers, or else the only one that is known."""
    models = client.models()
    models = [model for model in models if model.workers] or models
    if not models:
        raise NothingServed("no model is served yet; start a worker")
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise UsageError(f"several models are served, choose one with --model: {names}")
    return models[0]


def generation_options(arguments: argparse.Namespace, model: str) -> GenerateOptions:
    """What was given; the rest is left to the server."""
    options: GenerateOptions = {"model": model}
    given = {name: getattr(arguments, name, None) for name in OPTION_NAMES}
    options.update({name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item]
    output = output_of(arguments)
    if output is not None:
        options["output"] = output
    constraint = constraint_of(arguments)
    if constraint is not None:
        options["constraint"] = constraint
    return options


def model_and_prompt(
    client: Client, arguments: argparse.Namespace, text: str
) -> tuple[str, PromptLike]:
    """The model's name and the prompt, as a chat where the model knows chats. Asks only what it has to."""
    chat: bool | None = arguments.chat
    if arguments.system is not None:
        if chat is False:
            raise UsageError("--system needs a chat, not --raw")
        chat = True
    if arguments.model is not None and chat is not None:
        name = str(arguments.model)
    else:
        model = client.model(arguments.model) if arguments.model else only_model(client)
        # An alias stays an alias: the server resolves it, perhaps differently each time.
        name = str(arguments.model or model.name)
        chat = model.has_chat_template if chat is None else chat
    return name, messages(arguments.system, text) if chat else text


def messages(system: str | None, text: str) -> list[dict[str, str]]:
    """A conversation that begins with ``text``."""
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": text}]
