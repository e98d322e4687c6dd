"""Errors as gRPC statuses with google.rpc details, and as stored failures: one table, both directions.

Details stay under 4 KiB: gRPC's metadata limit is 8 KiB, and an oversized trailer would turn every error into
an opaque RESOURCE_EXHAUSTED.
"""

from collections.abc import Mapping

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from common import errors
from common.records import Failure
from headrace.v1 import inference_service_pb2 as pb

DOMAIN = "headrace"
_MAX_DETAILS_BYTES = 3_500
_MAX_FACTS_BYTES = 1_000
_PACKING_BYTES = 80
_MAX_MESSAGE_CHARS = 400
_BY_CODE: dict[str, type[errors.HeadraceError]] = {
    cls.code: cls
    for cls in (
        errors.NotFound,
        errors.Unauthenticated,
        errors.PermissionDenied,
        errors.AlreadyExists,
        errors.QueueFull,
        errors.Unavailable,
        errors.DeadlineExceeded,
        errors.Cancelled,
        errors.Aborted,
        errors.InternalFailure,
    )
}


def code_of(error: errors.HeadraceError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return grpc.StatusCode[error.code]


def status_of(error: errors.HeadraceError) -> status_pb2.Status:
    """The google.rpc.Status of an error, cut to what a trailer can carry."""
    # By bytes: on the wire the message stands once more, with three for each that is not ASCII.
    message = error.message.encode()[:_MAX_MESSAGE_CHARS].decode(errors="ignore")
    status = status_pb2.Status(code=code_of(error).value[0], message=message)
    for detail in _details(error):
        _add(status, detail)
    if isinstance(error, errors.InvalidRequest):
        _add(status, _bad_request(error, _MAX_DETAILS_BYTES - status.ByteSize() - _PACKING_BYTES))
    return status


def _add(status: status_pb2.Status, detail: Message) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    if status.ByteSize() + packed.ByteSize() + 4 <= _MAX_DETAILS_BYTES:
        status.details.append(packed)


def request_error_of(error: errors.HeadraceError) -> pb.RequestError:
    """The same facts as a message, for batches and look-ups."""
    message = pb.RequestError(
        code=code_of(error).value[0],
        message=error.message[:_MAX_MESSAGE_CHARS],
        reason=error.reason,
        metadata=error.metadata,
    )
    if isinstance(error, errors.InvalidRequest):
        for violation in error.violations[:32]:
            message.field_violations.add(
                field=violation.field, description=violation.description[:_MAX_MESSAGE_CHARS]
            )
    if error.retry_after_s is not None:
        message.retry_after.FromNanoseconds(round(error.retry_after_s * 1e9))
    return message


def error_of(failure: Failure) -> errors.HeadraceError:
    """The error that a stored failure stands for; an unknown code counts as INTERNAL."""
    cls = _BY_CODE.get(failure.code, errors.InternalFailure)
    return cls(failure.message, reason=failure.reason, metadata=failure.metadata)


def _details(error: errors.HeadraceError) -> list[Message]:
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=error.reason,
            domain=DOMAIN,
            metadata=_facts(error.metadata),
        )
    ]
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after_s * 1e9))
        details.append(retry)
    if isinstance(error, errors.QuotaExceeded):
        violation = error_details_pb2.QuotaFailure.Violation(
            subject=error.subject, description=error.message[:_MAX_MESSAGE_CHARS]
        )
        details.append(error_details_pb2.QuotaFailure(violations=[violation]))
    if isinstance(error, errors.NotFound) and "resource_name" in error.metadata:
        details.append(
            error_details_pb2.ResourceInfo(
                resource_type=error.metadata.get("resource_type", ""),
                resource_name=error.metadata["resource_name"][:256],
                description=error.message[:_MAX_MESSAGE_CHARS],
            )
        )
    return details


def _facts(metadata: Mapping[str, str]) -> dict[str, str]:
    """As many facts as fit: too many of them must not cost the reason that they belong to."""
    facts, left = {}, _MAX_FACTS_BYTES
    for key, value in metadata.items():
        cut = value[:256]
        left -= len(key.encode()) + len(cut.encode()) + 8
        if left < 0:
            break
        facts[key] = cut
    return facts


def _bad_request(error: errors.InvalidRequest, room: int) -> error_details_pb2.BadRequest:
    """As many violations as fit: the message says how many there are in all."""
    detail = error_details_pb2.BadRequest()
    for violation in error.violations:
        detail.field_violations.add(
            field=violation.field[:200], description=violation.description[:300]
        )
        if detail.ByteSize() > room:
            del detail.field_violations[-1]
            break
    return detail
