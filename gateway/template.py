"""Chat templates: code from a model's files, run in a sandbox, with a bound on what it may write.

The environment is what template authors expect (the conventions of Hugging Face's chat templates): blocks
trimmed, loop controls, ``raise_exception``, ``strftime_now``, and a ``tojson`` that keeps characters as they are.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from common.errors import FieldViolation, InvalidRequest
from gateway.draft import ChatPrompt

MAX_RENDERED_CHARS = 4 * 1024 * 1024
"""As long as the longest message: a template only wraps what was sent."""

_FIELD = "prompt.chat"


class BadTemplate(Exception):
    """The template does not compile."""


class ChatTemplate:
    """A compiled template and the special tokens it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises BadTemplate."""
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise BadTemplate(str(error)) from error
        self._special_tokens = dict(special_tokens)

    def render(self, chat: ChatPrompt) -> str:
        """The conversation as text.

        Raises:
            InvalidRequest: the template refuses the conversation, fails on it, or writes without end.
        """
        parts: list[str] = []
        room = MAX_RENDERED_CHARS
        try:
            for part in self._template.generate(
                messages=_messages(chat),
                add_generation_prompt=chat.add_generation_prompt,
                **self._special_tokens,
            ):
                room -= len(part)
                if room < 0:
                    raise _refusal(f"renders to more than {MAX_RENDERED_CHARS} characters")
                parts.append(part)
        except InvalidRequest:
            raise
        except Exception as error:
            raise _refusal(f"the chat template refuses it: {str(error)[:200]}") from error
        return "".join(parts)


def _messages(chat: ChatPrompt) -> Sequence[dict[str, str]]:
    messages = []
    for message in chat.messages:
        fields = {"role": message.role or "", "content": message.content}
        if message.name is not None:
            fields["name"] = message.name
        messages.append(fields)
    return messages


def _refusal(description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation(_FIELD, description)])


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's words for training; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012 - the library's own declaration

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """What is inside, as if the marks were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
        autoescape=False,
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    # The sandbox bounds range(); these two could still build a huge string in one expression.
    environment.globals.pop("lipsum", None)
    environment.filters.pop("center", None)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now(datetime.UTC).strftime(pattern)
