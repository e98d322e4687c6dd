"""Fields whose JSON has another form than their place in the message."""

import json
import math
from collections.abc import Callable
from typing import Any

from gateway.http.fields import (
    FLAG,
    NUMBER,
    TEXT,
    UINT32_MAX,
    Field,
    Schema,
)
from gateway.http.json_values import (
    read_flag,
    read_integer,
    read_integers,
    read_number,
    read_object,
    read_text,
    read_texts,
    shown,
)
from gateway.validation.fields import MAX_LABELS, MAX_LOGIT_BIAS, MAX_OPTIONS
from gateway.validation.findings import Findings
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

_LONGEST_S = 1e9
_PRIORITIES = ("batch", "normal", "high", "critical")
_TOKEN_IDS: Schema = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": UINT32_MAX},
}


MAX_PROMPTS = 64
"""Most prompts of one call; more are several calls, or a batch."""


def are_many(prompt: Any) -> bool:
    """Whether a prompt is several: texts, or lists of token ids."""
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


def is_prompt(prompt: Any) -> bool:
    """Whether it is one prompt, as far as its form tells."""
    return isinstance(prompt, str) or (
        isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int)
    )


def _read_prompt(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    """A text or token ids, or a list of one of them: OpenAI's four forms."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        if len(value) > 1:
            findings.add(name, "must hold one prompt: send each as a request of its own")
            return
        value = value[0]
    if isinstance(value, str):
        text = read_text(value, name, findings)
        request.prompt.text = text or ""
    elif isinstance(value, list):
        ids = read_integers(value, name, findings)
        request.prompt.token_ids.ids.extend(ids or ())
    else:
        findings.add(name, "must be a string or a list of token ids")


def _read_logit_bias(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    for key, bias in (read_object(value, name, findings, most=MAX_LOGIT_BIAS) or {}).items():
        place = f"{name}[{shown(key)}]"
        if not key.isascii() or not key.isdigit() or len(key) > 10 or int(key) > UINT32_MAX:
            findings.add(place, "must be a token id")
            continue
        number = read_number(bias, place, findings)
        if number is not None:
            request.sampling.logit_bias[int(key)] = number


def _read_labels(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    for key, item in (read_object(value, name, findings, most=MAX_LABELS) or {}).items():
        place = f"{name}[{shown(key)}]"
        label, text = read_text(key, place, findings), read_text(item, place, findings)
        if label is not None and text is not None:
            request.labels[label] = text


def _read_user(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    request.labels["user"] = read_text(value, name, findings) or ""


def _read_priority(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    text = read_text(value, name, findings)
    if text is None:
        return
    if text.lower() not in _PRIORITIES:
        findings.add(name, f"must be one of {', '.join(_PRIORITIES)}")
        return
    request.priority = gen.Priority.Value(f"PRIORITY_{text.upper()}")


def _read_deadline(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    seconds = read_number(value, name, findings)
    if seconds is None:
        return
    if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST_S:
        findings.add(name, "must be above 0: seconds from now")
        return
    request.timeout.FromNanoseconds(max(1, round(seconds * 1e9)))


def _read_response_format(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    found = read_object(value, name, findings, ("type", "json_schema"))
    kind = found.get("type") if found is not None else None
    if found is None or kind == "text":
        return
    if kind == "json_object":
        request.constraint.json_object = True
    elif kind == "json_schema":
        known = ("name", "description", "schema", "strict")
        path = f"{name}.json_schema"
        outer = read_object(found.get("json_schema"), path, findings, known)
        schema = read_object((outer or {}).get("schema"), f"{path}.schema", findings, most=None)
        if schema is not None:
            request.constraint.json_schema = json.dumps(schema)
    else:
        findings.add(f"{name}.type", "must be text, json_object or json_schema")


def _read_json_schema(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    schema = read_object(value, name, findings, most=None)
    if schema is not None:
        request.constraint.json_schema = json.dumps(schema)


def _read_choice(request: pb.GenerateRequest, value: Any, name: str, findings: Findings) -> None:
    request.constraint.choice.SetInParent()
    request.constraint.choice.options.extend(read_texts(value, name, findings, MAX_OPTIONS) or ())


def _read_json_object(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    if read_flag(value, name, findings):
        request.constraint.json_object = True


def _read_num_logprobs(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    """Completions count alternatives where chat has a switch and a number."""
    found = read_integer(value, name, findings, 0, UINT32_MAX)
    if found is not None:
        request.output.logprobs = True
        request.output.top_logprobs = found


def _read_max_completion_tokens(
    request: pb.GenerateRequest, value: Any, name: str, findings: Findings
) -> None:
    found = read_integer(value, name, findings, 0, UINT32_MAX)
    if found is None:
        return
    # Fields are read in the order of the table, in which max_tokens comes before.
    if request.stop.HasField("max_tokens") and request.stop.max_tokens != found:
        findings.add(name, "must equal max_tokens where both are given")
    request.stop.max_tokens = found


def _field(
    read: Callable[[pb.GenerateRequest, Any, str, Findings], None], path: str, schema: Schema
) -> Field:
    return Field(read, path, schema)


_ONE_PROMPT: Schema = {"anyOf": [TEXT, _TOKEN_IDS]}
PROMPT = _field(
    _read_prompt,
    "prompt",
    {
        "anyOf": [
            TEXT,
            _TOKEN_IDS,
            {"type": "array", "items": _ONE_PROMPT, "maxItems": MAX_PROMPTS},
        ]
    },
)
LOGIT_BIAS = _field(
    _read_logit_bias,
    "sampling.logit_bias",
    {"type": "object", "additionalProperties": NUMBER, "propertyNames": {"pattern": "^[0-9]+$"}},
)
LABELS = _field(_read_labels, "labels", {"type": "object", "additionalProperties": TEXT})
USER = _field(_read_user, "labels[user]", TEXT)
PRIORITY = _field(_read_priority, "priority", {"enum": list(_PRIORITIES)})
DEADLINE = _field(_read_deadline, "timeout", {"type": "number", "exclusiveMinimum": 0})
RESPONSE_FORMAT = _field(
    _read_response_format,
    "constraint",
    {
        "type": "object",
        "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {"type": "object"},
        },
        "required": ["type"],
    },
)
JSON_SCHEMA = _field(_read_json_schema, "constraint.json_schema", {"type": "object"})
JSON_OBJECT = _field(_read_json_object, "constraint.json_object", FLAG)
CHOICE = _field(_read_choice, "constraint.choice", {"type": "array", "items": TEXT})
NUM_LOGPROBS = _field(
    _read_num_logprobs,
    "output.top_logprobs",
    {"type": "integer", "minimum": 0, "maximum": UINT32_MAX},
)
MAX_COMPLETION_TOKENS = _field(
    _read_max_completion_tokens,
    "stop.max_tokens",
    {"type": "integer", "minimum": 0, "maximum": UINT32_MAX},
)
