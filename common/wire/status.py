"""Errors as gRPC statuses with google.rpc details, and as stored failures: one table, both directions.

Details stay under 4 KiB: gRPC's metadata limit is 8 KiB, and an oversized trailer would turn every error into
an opaque RESOURCE_EXHAUSTED.
"""

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from common import errors
from common.records import Failure
from headrace.v1 import inference_service_pb2 as pb

DOMAIN = "headrace"
_MAX_DETAILS_BYTES = 3_500
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
        errors.InternalFailure,
    )
}


def code_of(error: errors.HeadraceError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return grpc.StatusCode[error.code]


def status_of(error: errors.HeadraceError) -> status_pb2.Status:
    """The google.rpc.Status of an error, cut to what a trailer can carry."""
    status = status_pb2.Status(
        code=code_of(error).value[0], message=error.message[:_MAX_MESSAGE_CHARS]
    )
    for detail in _details(error):
        packed = any_pb2.Any()
        packed.Pack(detail)
        if status.ByteSize() + packed.ByteSize() <= _MAX_DETAILS_BYTES:
            status.details.append(packed)
    return status


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


def failure_of(error: errors.HeadraceError) -> Failure:
    """An error as it is stored."""
    return Failure(error.code, error.message, error.reason, error.metadata)


def error_of(failure: Failure) -> errors.HeadraceError:
    """The error that a stored failure stands for; an unknown code counts as INTERNAL."""
    cls = _BY_CODE.get(failure.code, errors.InternalFailure)
    return cls(failure.message, reason=failure.reason, metadata=failure.metadata)


def _details(error: errors.HeadraceError) -> list[Message]:
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=error.reason,
            domain=DOMAIN,
            metadata={key: value[:256] for key, value in error.metadata.items()},
        )
    ]
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after_s * 1e9))
        details.append(retry)
    if isinstance(error, errors.InvalidRequest):
        details.append(_bad_request(error))
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


def _bad_request(error: errors.InvalidRequest) -> error_details_pb2.BadRequest:
    """As many violations as fit: the message says how many there are in all."""
    detail = error_details_pb2.BadRequest()
    for violation in error.violations:
        detail.field_violations.add(
            field=violation.field[:200], description=violation.description[:300]
        )
        if detail.ByteSize() > _MAX_DETAILS_BYTES - 1_000:
            del detail.field_violations[-1]
            break
    return detail
