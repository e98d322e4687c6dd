"""The OpenAPI document, made from the table of fields, so that it says what the reader takes."""

from typing import Any

from gateway.http.neutral_fields import NEUTRAL_STREAM_OPTIONS, neutral_schemas
from gateway.http.request_forms import CHAT, COMPLETION, NATIVE, TOKENIZE, Form

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_OBJECT = {"type": "object"}
_REFUSALS = {
    "400": "a field is refused, or not implemented",
    "401": "no key, or a bad one",
    "403": "not allowed",
    "404": "unknown model",
    "408": "the deadline passed in the queue, or the body came too slowly",
    "409": "the idempotency key was used with another request",
    "413": "the body is too long",
    "415": "the body is not application/json",
    "429": "a quota or the queue is full",
    "499": "cancelled",
    "500": "failed, and would again",
    "503": "not now",
    "504": "the deadline passed",
}


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, Any] = {}
    for path, form, summary in (
        ("/v1/chat/completions", CHAT, "Generate an answer to a conversation"),
        ("/v1/completions", COMPLETION, "Continue a prompt"),
        ("/api/generate", NATIVE, "Generate, answered in the words of headrace.v1"),
        ("/tokenize", TOKENIZE, "Tokens of a prompt, exactly as generation would have them"),
    ):
        paths[path] = {"post": _post(summary, _schema(form), streams=form.streams)}
    item = _schema(NATIVE, may_stream=False)
    requests = {"type": "array", "items": item, "minItems": 1, "maxItems": 256}
    batch = _closed({"requests": requests}, ["requests"])
    paths["/api/batch_generate"] = {"post": _post("Generate for many prompts", batch)}
    paths["/v1/models"] = {"get": _operation("List the models")}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    paths["/v1/models/{model}"] = {"get": {**_operation("Describe a model"), "parameters": [name]}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": "1"},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _schema(form: Form, *, may_stream: bool = True) -> dict[str, Any]:
    properties: dict[str, Any] = {
        name: {"anyOf": [dict(field.schema), {"type": "null"}]}
        if name not in form.required
        else dict(field.schema)
        for name, field in form.fields.items()
    }
    properties |= neutral_schemas(form.neutral)
    if form.streams and may_stream:
        properties["stream"] = {"type": ["boolean", "null"]}
        options = {
            "include_usage": {"type": ["boolean", "null"]},
            **neutral_schemas(NEUTRAL_STREAM_OPTIONS),
        }
        properties["stream_options"] = {"anyOf": [_closed(options, []), {"type": "null"}]}
    return _closed(properties, [*form.required])


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _post(summary: str, schema: dict[str, Any], *, streams: bool = False) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {**_operation(summary, streams=streams), "requestBody": body}


def _operation(summary: str, *, streams: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _OBJECT}}
    if streams:
        content["text/event-stream"] = {}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {code: {"description": text, "content": error} for code, text in _REFUSALS.items()}
    return {
        "summary": summary,
        "responses": {"200": {"description": "done", "content": content}, **refusals},
    }


DOCUMENT = document()
