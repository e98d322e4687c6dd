"""Errors as HTTP answers in OpenAI's form: one table, from the same exception tree as gRPC's statuses."""

import json
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from common.errors import FieldViolation, HeadraceError, InvalidRequest, NotImplementedYet

CLIENT_GONE = 499
"""Nobody reads it: the customary code for logs where the client left first, and for a cancelled request."""

# gRPC's code → status, OpenAI's `type`.
_TABLE: dict[str, tuple[int, str]] = {
    "INVALID_ARGUMENT": (HTTPStatus.BAD_REQUEST, "invalid_request_error"),
    # Not 501: it is the request that has to change, and proxies count 5xx as faults of the server.
    "UNIMPLEMENTED": (HTTPStatus.BAD_REQUEST, "invalid_request_error"),
    "UNAUTHENTICATED": (HTTPStatus.UNAUTHORIZED, "authentication_error"),
    "PERMISSION_DENIED": (HTTPStatus.FORBIDDEN, "permission_error"),
    "NOT_FOUND": (HTTPStatus.NOT_FOUND, "invalid_request_error"),
    "ALREADY_EXISTS": (HTTPStatus.CONFLICT, "invalid_request_error"),
    "RESOURCE_EXHAUSTED": (HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error"),
    "UNAVAILABLE": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error"),
    "ABORTED": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error"),
    "DEADLINE_EXCEEDED": (HTTPStatus.GATEWAY_TIMEOUT, "timeout_error"),
    "CANCELLED": (CLIENT_GONE, "cancelled_error"),
    "INTERNAL": (HTTPStatus.INTERNAL_SERVER_ERROR, "server_error"),
}
_MAX_VIOLATIONS = 32
_MAX_CHARS = 400

Rename = Callable[[str], str]


class HttpRefusal(Exception):
    """A message that never becomes a request: refused for what HTTP itself says of it."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        """``reason`` as an error's."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class RefusedAsSent(InvalidRequest):
    """Fields of the JSON itself were refused: they bear the names that were sent, known ones or not."""


def status_of(error: HeadraceError) -> int:
    """The HTTP status of an error."""
    if error.code == "DEADLINE_EXCEEDED" and error.metadata.get("stage") == "queue":
        return HTTPStatus.REQUEST_TIMEOUT
    return _TABLE[error.code][0]


def headers_of(error: HeadraceError) -> dict[str, str]:
    """Whether and when to come back. OpenAI's clients retry by status alone unless they are told otherwise."""
    if error.retry_after_s is None:
        return {"x-should-retry": "false"}
    return {
        "retry-after": str(max(1, math.ceil(error.retry_after_s))),
        "retry-after-ms": str(math.ceil(error.retry_after_s * 1000)),
        "x-should-retry": "true",
    }


def body_of(error: HeadraceError, rename: Rename = str) -> bytes:
    """The error in OpenAI's form, with all refused fields and the facts; ``rename`` turns paths into JSON names."""
    fields = _fields(error, rename)
    message = error.message
    if isinstance(error, InvalidRequest):
        message = InvalidRequest(fields).message
    elif isinstance(error, NotImplementedYet):
        message = NotImplementedYet([field.field for field in fields]).message
    content: dict[str, Any] = {
        "message": message[:_MAX_CHARS],
        "type": _TABLE[error.code][1],
        "param": fields[0].field[:_MAX_CHARS] if fields else None,
        "code": error.reason.lower(),
        "grpc_code": error.code,
        "metadata": {
            key: value[:_MAX_CHARS]
            for key, value in error.metadata.items()
            if not isinstance(error, NotImplementedYet)
        },
        "violations": [
            {"field": field.field[:_MAX_CHARS], "description": field.description[:_MAX_CHARS]}
            for field in fields[:_MAX_VIOLATIONS]
        ],
    }
    if error.retry_after_s is not None:
        content["retry_after_s"] = round(error.retry_after_s, 3)
    return json.dumps({"error": content}).encode()


def refusal_body(refusal: HttpRefusal) -> bytes:
    """A refusal in the same form."""
    content = {
        "message": refusal.message,
        "type": "invalid_request_error",
        "param": None,
        "code": refusal.reason.lower(),
    }
    return json.dumps({"error": content}).encode()


def _fields(error: HeadraceError, rename: Rename) -> list[FieldViolation]:
    if isinstance(error, RefusedAsSent):
        return list(error.violations)
    if isinstance(error, InvalidRequest):
        return [FieldViolation(rename(one.field), one.description) for one in error.violations]
    if isinstance(error, NotImplementedYet):
        return [FieldViolation(rename(name), "is not implemented yet") for name in error.fields]
    return []
