"""The messages of a conversation: roles and text, and of OpenAI's other members those that ask for nothing."""

from typing import Any

from gateway.http.fields import TEXT, Field, Schema
from gateway.http.json_values import leave_out, read_list, read_object, read_text
from gateway.http.neutral_fields import NEUTRAL_MESSAGE, neutral_schemas
from gateway.validation.fields import MAX_MESSAGES
from gateway.validation.findings import Findings
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

_MAX_PARTS = 64
MAX_ALL_PARTS = 4096
"""Of all messages together: each costs as much to read as a message does."""
_ROLES = {
    "system": gen.ROLE_SYSTEM,
    "developer": gen.ROLE_SYSTEM,
    "user": gen.ROLE_USER,
    "assistant": gen.ROLE_ASSISTANT,
    "tool": gen.ROLE_TOOL,
}


def read_messages(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    """A conversation. A message that a client got from an answer may be sent as it was."""
    request.prompt.chat.SetInParent()
    messages = read_list(value, name, findings, MAX_MESSAGES) or []
    if sum(map(_num_parts, messages)) > MAX_ALL_PARTS:
        findings.add(name, f"must hold at most {MAX_ALL_PARTS} parts of text in all")
        return
    for index, item in enumerate(messages):
        path = f"{name}[{index}]"
        ours = leave_out(item, path, findings, NEUTRAL_MESSAGE)
        message = read_object(ours, path, findings, ("role", "content", "name"))
        if message is None:
            return
        chat = request.prompt.chat.messages.add()
        role = read_text(message.get("role"), f"{path}.role", findings)
        if role is not None and role not in _ROLES:
            findings.add(f"{path}.role", f"must be one of {', '.join(_ROLES)}")
        chat.role = _ROLES.get(role or "", gen.ROLE_UNSPECIFIED)
        chat.content = _content(message.get("content"), f"{path}.content", findings)
        if "name" in message:
            chat.name = read_text(message["name"], f"{path}.name", findings) or ""


def _num_parts(item: Any) -> int:
    content = item.get("content") if isinstance(item, dict) else None
    # More than these are refused by themselves.
    return min(len(content), _MAX_PARTS) if isinstance(content, list) else 0


def _content(value: Any, name: str, findings: Findings) -> str:
    """A string, or parts of text; of what is no text it is said so."""
    if not isinstance(value, list):
        return read_text(value, name, findings) or ""
    parts = []
    for index, item in enumerate(read_list(value, name, findings, _MAX_PARTS) or ()):
        path = f"{name}[{index}]"
        if isinstance(item, dict) and item.get("type") != "text":
            findings.add(f"{path}.type", "must be text: this API takes no other parts")
            continue
        part = read_object(item, path, findings, ("type", "text"))
        if part is None:
            continue
        parts.append(read_text(part.get("text"), f"{path}.text", findings) or "")
    return "".join(parts)


_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": list(_ROLES)},
        "content": {
            "anyOf": [
                TEXT,
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"const": "text"}, "text": TEXT},
                        "required": ["type", "text"],
                        "additionalProperties": False,
                    },
                },
            ]
        },
        "name": TEXT,
        **neutral_schemas(NEUTRAL_MESSAGE),
    },
    "required": ["role", "content"],
    "additionalProperties": False,
}
MESSAGES = Field(read_messages, "prompt.chat.messages", {"type": "array", "items": _MESSAGE})
