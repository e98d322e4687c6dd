"""The table of fields: documents, names and messages agree with it."""

import inspect
import json
import re
from pathlib import Path
from typing import get_args

import pytest
from openai.resources.chat.completions import Completions as Chat
from openai.resources.completions import Completions
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.chat.chat_completion_stream_options_param import (
    ChatCompletionStreamOptionsParam,
)

from common.errors import FieldViolation, InvalidRequest, NotImplementedYet
from gateway.http.errors import RefusedAsSent, body_of
from gateway.http.json_values import parse_object
from gateway.http.neutral_fields import NEUTRAL_MESSAGE, NEUTRAL_STREAM_OPTIONS
from gateway.http.openapi import document
from gateway.http.request_forms import CHAT, COMPLETION, NATIVE, TOKENIZE, Form, read_request
from headrace.v1 import generation_pb2 as gen

_DOCUMENT = Path(__file__).parents[3] / "docs" / "api.md"
_NOT_FIELDS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}


def known(form: Form) -> set[str]:
    """Every name that a form says something about."""
    return {*form.fields, *form.neutral, "stream", "stream_options"}


@pytest.mark.parametrize(
    ("form", "create"), [(CHAT, Chat.create), (COMPLETION, Completions.create)]
)
def test_every_field_of_openai_is_decided(form: Form, create: object) -> None:
    """What OpenAI's own client can send is supported or refused by its name, never unknown."""
    names = set(inspect.signature(create).parameters) - _NOT_FIELDS  # type: ignore[arg-type]
    assert names - known(form) == set()


def test_every_member_of_openais_messages_and_options_is_decided() -> None:
    """Also inside of fields."""
    members = {
        name for kind in get_args(ChatCompletionMessageParam) for name in kind.__annotations__
    }
    members |= ChatCompletionMessage.model_fields.keys()
    assert members - {"role", "content", "name"} == NEUTRAL_MESSAGE.keys()
    options = ChatCompletionStreamOptionsParam.__annotations__.keys()
    assert options - {"include_usage"} == NEUTRAL_STREAM_OPTIONS.keys()


@pytest.mark.parametrize(("form", "label"), [(CHAT, "chat"), (COMPLETION, "completions")])
def test_the_document_lists_every_field_once(form: Form, label: str) -> None:
    """docs/api.md has each field, and no other."""
    table = _DOCUMENT.read_text().partition("<!-- fields")[2].partition("What this version")[0]
    listed: list[str] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[2] in (label, "both"):
            listed += re.findall(r"`(\w+)`", cells[1])
    assert sorted(listed) == sorted(known(form))


@pytest.mark.parametrize("form", [CHAT, COMPLETION, NATIVE])
def test_every_place_exists_and_is_named_back(form: Form) -> None:
    """A path from inside comes out under a name of the form."""
    for name, field in form.fields.items():
        assert form.rename(field.path) in form.fields, name
        assert form.rename(f"{field.path}[3]").endswith("[3]")
    assert form.rename("metadata.x-tenant-id") == "metadata.x-tenant-id"


def test_a_whole_request() -> None:
    """Values land in their places; null is unset; the last word on the length is max_completion_tokens."""
    asked = read_request(
        CHAT,
        {
            "model": "m",
            "messages": [{"role": "user", "content": "x", "name": "n"}],
            "temperature": 0,
            "top_p": None,
            "max_completion_tokens": 5,
            "stop": "end",
            "logit_bias": {"7": -1},
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
            },
            "deadline": 1.5,
            "priority": "HIGH",
            "tools": [],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    request = asked.request
    assert request.sampling.HasField("temperature")
    assert not request.sampling.HasField("top_p")
    assert request.stop.max_tokens == 5
    assert list(request.stop.stop) == ["end"]
    assert dict(request.sampling.logit_bias) == {7: -1.0}
    assert request.constraint.json_schema == '{"type": "object"}'
    assert request.timeout.ToMilliseconds() == 1500
    assert request.priority == gen.PRIORITY_HIGH
    assert request.prompt.chat.messages[0].name == "n"
    assert (asked.is_stream, asked.include_usage) == (True, True)


def test_lengths_that_contradict_one_another() -> None:
    """Two names of one limit have one value."""
    body = {"model": "m", "messages": [], "max_tokens": 1, "max_completion_tokens": 2}
    with pytest.raises(InvalidRequest, match="max_completion_tokens"):
        read_request(CHAT, body)


def test_what_asks_for_nothing_passes_and_the_rest_is_named() -> None:
    """All unsupported fields at once, by name."""
    body: dict[str, object] = {"model": "m", "messages": [], "store": False, "tool_choice": "none"}
    assert read_request(CHAT, body).request.model == "m"
    with pytest.raises(NotImplementedYet) as caught:
        read_request(CHAT, {**body, "store": True, "audio": {"voice": "x"}})
    assert caught.value.fields == ("audio", "store")


def test_what_cannot_be_read_is_told_with_what_cannot_be() -> None:
    """Unknown fields, values out of bounds and what is not built, in one answer; an unread field is told of once."""
    found = [
        FieldViolation("sampling.temperature", "must be at most 2"),
        FieldViolation("prompt", "must be set"),
        FieldViolation("stop.min_tokens", "must be at most max_tokens"),
    ]
    body = {"model": "m", "no_such": 1, "temperature": 9, "min_tokens": "x", "store": True}
    with pytest.raises(RefusedAsSent) as caught:
        read_request(CHAT, body, "requests[1].", lambda _: found)
    assert sorted(one.field for one in caught.value.violations) == [
        "requests[1].messages",
        "requests[1].min_tokens",
        "requests[1].no_such",
        "requests[1].store",
        "requests[1].temperature",
    ]


def test_an_unknown_field_keeps_the_name_that_was_sent() -> None:
    """Also where the message has a field of that name, which this API calls otherwise."""
    body = {"model": "m", "prompt": "x", "timeout": 5, "constraint": {}}
    with pytest.raises(RefusedAsSent) as caught:
        read_request(COMPLETION, body)
    told = json.loads(body_of(caught.value, COMPLETION.rename))["error"]
    assert {one["field"] for one in told["violations"]} == {"timeout", "constraint"}
    assert "timeout: is not a known field" in told["message"]


MANY = 5_000
LONG_ONES: list[tuple[Form, dict[str, object], str]] = [
    (COMPLETION, {"stop": [7] * MANY}, "stop"),
    (COMPLETION, {"stop_token_ids": ["x"] * MANY}, "stop_token_ids"),
    (COMPLETION, {"choice": [7] * MANY}, "choice"),
    (COMPLETION, {"logit_bias": {f"x{n}": "x" for n in range(MANY)}}, "logit_bias"),
    (COMPLETION, {"metadata": {f"x{n}": 7 for n in range(MANY)}}, "metadata"),
    (COMPLETION, {"prompt": [{}] * MANY}, "prompt"),
    (CHAT, {"messages": [{}] * MANY}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [7] * MANY}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", **{f"x{n}": 7 for n in range(MANY)}}]}, "messages[0]"),
]


@pytest.mark.parametrize(("form", "fields", "name"), LONG_ONES)
def test_a_long_list_is_no_weapon(form: Form, fields: dict[str, object], name: str) -> None:
    """What is longer than it may be is refused for that and not looked into, while everybody waits (B07)."""
    whole = {"prompt": "x"} if form is COMPLETION else {"messages": []}
    with pytest.raises(RefusedAsSent) as caught:
        read_request(form, {"model": "m", **whole, **fields})
    assert {one.field for one in caught.value.violations} - {"messages[0].role"} == {name}


def test_a_body_of_a_thousand_fields_is_not_looked_into() -> None:
    """It is no request, whatever they are called."""
    with pytest.raises(InvalidRequest) as caught:
        parse_object(json.dumps({f"x{n}": 7 for n in range(MANY)}).encode())
    assert [one.field for one in caught.value.violations] == ["body"]


def test_fields_of_another_path_are_told_from_those_nobody_knows() -> None:
    """And what serves in their place is named."""
    told = {}
    for form, body in (
        (NATIVE, {"prompt": "x", "user": "me", "tools": [], "no_such": 1}),
        (TOKENIZE, {"prompt": "x", "stream": True}),
        (CHAT, {"messages": [], "stream": True, "stream_options": {"include_obfuscation": True}}),
    ):
        with pytest.raises(RefusedAsSent) as caught:
            read_request(form, {"model": "m", **body})
        told |= {one.field: one.description for one in caught.value.violations}
    assert told == {
        "user": "is not supported here: use labels",
        "tools": "is not supported here",
        "no_such": "is not a known field",
        "stream": "is not supported here",
        "stream_options.include_obfuscation": "is not supported",
    }


def test_a_message_goes_back_as_it_came() -> None:
    """With what is null or empty in it, as OpenAI's client has it; what asks for something is refused by its name."""
    nothing = ChatCompletionMessage(role="assistant", content="hello").model_dump()
    assert {"refusal", "audio", "tool_calls", "function_call", "annotations"} <= nothing.keys()
    body = {"model": "m", "messages": [nothing, {**nothing, "tool_calls": []}]}
    said = read_request(CHAT, body).request.prompt.chat.messages
    assert [one.content for one in said] == ["hello", "hello"]
    body = {"model": "m", "messages": [{**nothing, "tool_calls": [{}], "tool_call_id": "1"}]}
    with pytest.raises(RefusedAsSent) as caught:
        read_request(CHAT, body)
    assert [(one.field, one.description) for one in caught.value.violations] == [
        ("messages[0].tool_call_id", "is not supported"),
        ("messages[0].tool_calls", "is not supported"),
    ]


def test_an_echo_with_log_probabilities_has_the_prompts() -> None:
    """Of completions, as OpenAI's; in our own API each is asked for by its name."""
    both = {"model": "m", "prompt": "x", "echo": True, "logprobs": 0}
    assert read_request(COMPLETION, both).request.output.prompt_logprobs
    native = {**both, "logprobs": True}
    assert not read_request(NATIVE, native).request.output.prompt_logprobs
    alone = {"model": "m", "prompt": "x", "logprobs": 0}
    assert not read_request(COMPLETION, alone).request.output.prompt_logprobs
    assert COMPLETION.rename("output.prompt_logprobs") == "logprobs"
    assert NATIVE.rename("output.prompt_logprobs") == "prompt_logprobs"


def test_the_openapi_document_has_every_field() -> None:
    """It is made from the same table."""
    schema = document()["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
    properties = schema["application/json"]["schema"]["properties"]
    assert set(properties) == known(CHAT)
