"""The table of errors, row by row: code, details and HTTP status of each situation, none longer than a trailer may be."""

import json

import grpc
import pytest
from google.rpc import error_details_pb2

from common import errors
from common.records import failure_of
from common.wire.status import code_of, error_of, request_error_of, status_of
from gateway.http.errors import body_of, headers_of
from gateway.http.errors import status_of as http_status_of
from gateway.validation.lengths import REASON

_LONG = {f"key{number}": "v" * 5_000 for number in range(50)}
_TOO_MANY = [errors.FieldViolation(f"field[{n}]" * 50, "wrong " * 100) for n in range(1000)]
_STAGE = {"stage": "decode"}

ROWS = [
    (errors.InvalidRequest(_TOO_MANY), "INVALID_ARGUMENT", {"BadRequest"}, 400),
    (
        errors.InvalidRequest([errors.FieldViolation("é" * 9_000, "ü" * 9_000)] * 9),
        "INVALID_ARGUMENT",
        {"BadRequest"},
        400,
    ),
    (
        errors.InvalidRequest(_TOO_MANY[:1], reason=REASON, metadata={"context_tokens": "64"}),
        "INVALID_ARGUMENT",
        {"BadRequest"},
        400,
    ),
    (errors.NotImplementedYet(["sampling.n"] * 2000), "UNIMPLEMENTED", set(), 400),
    (errors.Unauthenticated("no", reason="MISSING_KEY"), "UNAUTHENTICATED", set(), 401),
    (errors.PermissionDenied("no", reason="MODEL_NOT_ALLOWED"), "PERMISSION_DENIED", set(), 403),
    (
        errors.NotFound(
            "no", reason="X", metadata={"resource_type": "model", "resource_name": "m" * 9_000}
        ),
        "NOT_FOUND",
        {"ResourceInfo"},
        404,
    ),
    (
        errors.QuotaExceeded(
            "used " * 9_000, subject="tenant:t", limit="requests_per_minute", retry_after_s=3.2
        ),
        "RESOURCE_EXHAUSTED",
        {"QuotaFailure", "RetryInfo"},
        429,
    ),
    (
        errors.QuotaExceeded("too large", subject="tenant:t", limit="tokens_per_minute"),
        "RESOURCE_EXHAUSTED",
        {"QuotaFailure"},
        429,
    ),
    (
        errors.QueueFull("full", reason="QUEUE_FULL", metadata=_LONG, retry_after_s=0.2),
        "RESOURCE_EXHAUSTED",
        {"RetryInfo"},
        429,
    ),
    (
        errors.Unavailable("away", reason="NO_WORKER", retry_after_s=1.0),
        "UNAVAILABLE",
        {"RetryInfo"},
        503,
    ),
    (
        errors.DeadlineExceeded("late", reason="X", metadata={"stage": "queue"}),
        "DEADLINE_EXCEEDED",
        set(),
        408,
    ),
    (
        errors.DeadlineExceeded("late", reason="X", metadata=_STAGE),
        "DEADLINE_EXCEEDED",
        set(),
        504,
    ),
    (
        errors.AlreadyExists("taken", reason="IDEMPOTENCY_KEY_REUSED"),
        "ALREADY_EXISTS",
        set(),
        409,
    ),
    (errors.InternalFailure("x" * 9_000, reason="POISON_REQUEST"), "INTERNAL", set(), 500),
    (errors.Aborted("read nothing", reason="READER_TOO_SLOW"), "ABORTED", set(), 503),
    (errors.Cancelled("gone", reason="CANCELLED"), "CANCELLED", set(), 499),
]


@pytest.mark.parametrize(("error", "code", "details", "http_status"), ROWS)
def test_a_row(
    error: errors.HeadraceError, code: str, details: set[str], http_status: int
) -> None:
    """RetryInfo and Retry-After are there exactly where a retry can help; the reason is never cut away."""
    status = status_of(error)
    assert code_of(error) is grpc.StatusCode[code]
    assert len(status.SerializeToString()) < 4096
    assert len(status.message.encode()) <= 400
    names = {detail.TypeName().rpartition(".")[2] for detail in status.details}
    # Facts that are longer than a trailer may be give way to what says what to do.
    assert details <= names
    is_retried = error.retry_after_s is not None
    assert ("RetryInfo" in names) is is_retried
    infos = [error_details_pb2.ErrorInfo() for _ in status.details]
    found = [d.Unpack(info) and info.reason for d, info in zip(status.details, infos, strict=True)]
    assert error.reason in found
    headers = headers_of(error)
    assert ("retry-after" in headers) is is_retried
    assert headers["x-should-retry"] == str(is_retried).lower()
    assert http_status_of(error) == http_status
    content = json.loads(body_of(error))["error"]
    assert content["code"] == error.reason.lower()
    assert {"message", "type", "param"} <= content.keys()
    assert request_error_of(error).reason == error.reason


def test_every_error_has_a_row() -> None:
    """A new kind of error is added here, or it is none."""
    kinds = set[type[errors.HeadraceError]]()
    waiting = [errors.HeadraceError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__ == errors.__name__:
                kinds.add(kind)
    assert {type(row[0]) for row in ROWS} == kinds


def test_stored_failures_come_back_as_they_were() -> None:
    """By code and reason; what is unknown counts as ours."""
    for row in ROWS:
        error = row[0]
        again = error_of(failure_of(error))
        assert again.reason == error.reason
        if not isinstance(error, errors.InvalidRequest | errors.NotImplementedYet):
            assert again.code == error.code
