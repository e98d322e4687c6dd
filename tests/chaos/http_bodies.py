"""Requests as `/api/generate` takes them: the contract's fields, most of them by their own names and all on one level."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


def body_of(request: pb.GenerateRequest) -> dict[str, Any]:
    """A request's JSON."""
    body: dict[str, Any] = {}
    for field, value in request.ListFields():
        if isinstance(value, Message) and field.name != "timeout":
            for inner, of_it in value.ListFields():
                body |= _members(f"{field.name}.{inner.name}", of_it)
        else:
            body |= _members(field.name, value)
    return body


def _members(path: str, value: Any) -> dict[str, Any]:
    if path in _OTHERWISE:
        return dict(_OTHERWISE[path](value))
    return {path.rpartition(".")[2]: value}


def _conversation(chat: Any) -> dict[str, Any]:
    said: dict[str, Any] = MessageToDict(chat, preserving_proto_field_name=True)
    for message in said["messages"]:
        message["role"] = message["role"].removeprefix("ROLE_").lower()
    return said


def _class_name(priority: Any) -> str:
    return gen.Priority.Name(priority).removeprefix("PRIORITY_").lower()


_OTHERWISE: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "prompt.text": lambda text: {"prompt": text},
    "prompt.token_ids": lambda prompt: {"prompt": [*prompt.ids]},
    "prompt.chat": _conversation,
    "sampling.logit_bias": lambda biases: {"logit_bias": {str(k): v for k, v in biases.items()}},
    "stop.stop": lambda stops: {"stop": [*stops]},
    "stop.stop_token_ids": lambda ids: {"stop_token_ids": [*ids]},
    "output.token_ids": lambda wanted: {"return_token_ids": wanted},
    "constraint.json_schema": lambda text: {"json_schema": json.loads(text)},
    "constraint.choice": lambda choice: {"choice": [*choice.options]},
    "priority": lambda priority: {"priority": _class_name(priority)},
    "timeout": lambda timeout: {"deadline": timeout.ToNanoseconds() / 1e9},
    "labels": lambda labels: {"labels": dict(labels)},
}
"""What has another name or form in JSON."""
