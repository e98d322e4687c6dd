"""The border between gRPC statuses and the client's ``HeadraceError``: the one place that knows both."""

from collections.abc import Iterable
from typing import TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from headrace.client.errors import ERROR_CLASSES, FieldViolation, HeadraceError, Resource
from headrace.v1 import inference_service_pb2 as pb

DETAILS_KEY = "grpc-status-details-bin"
_CODE_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}
_Detail = TypeVar("_Detail", bound=Message)


def error_from_rpc(error: grpc.RpcError, request_id: str | None = None) -> HeadraceError:
    """Translates a failed call; ``request_id`` is what the caller knows, if it knows it."""
    # Every RpcError that a call raises is also the call (sync) or has the same methods (aio).
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    status = _rich_status(error.trailing_metadata() or ())
    info = _detail(status, error_details_pb2.ErrorInfo)
    retry = _detail(status, error_details_pb2.RetryInfo)
    resource = _detail(status, error_details_pb2.ResourceInfo)
    code = error.code().name
    return ERROR_CLASSES.get(code, HeadraceError)(
        error.details() or "",
        code=code,
        reason=info.reason if info else "",
        metadata=info.metadata if info else None,
        field_violations=_violations(status),
        retry_after_s=_seconds(retry.retry_delay) if retry else None,
        resource=Resource(resource.resource_type, resource.resource_name) if resource else None,
        request_id=_request_id(status, info) or request_id,
    )


def error_from_batch(error: pb.RequestError) -> HeadraceError:
    """Translates why one request of a batch or a looked-up request failed."""
    code = _CODE_NAMES.get(error.code, "UNKNOWN")
    return ERROR_CLASSES.get(code, HeadraceError)(
        error.message,
        code=code,
        reason=error.reason,
        metadata=error.metadata,
        field_violations=[FieldViolation(v.field, v.description) for v in error.field_violations],
        retry_after_s=_seconds(error.retry_after) if error.HasField("retry_after") else None,
        request_id=error.metadata.get("request_id"),
    )


def _rich_status(trailers: Iterable[tuple[str, str | bytes]]) -> status_pb2.Status:
    """The google.rpc status in the trailers; an empty one where there is none or it is unreadable."""
    status = status_pb2.Status()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                status.ParseFromString(value)
            except DecodeError:
                status.Clear()  # the plain status still tells code and message
    return status


def _detail(status: status_pb2.Status, kind: type[_Detail]) -> _Detail | None:
    """The first detail of a kind; an unreadable one is as good as none."""
    for packed in status.details:
        found = kind()
        try:
            if packed.Unpack(found):
                return found
        except DecodeError:
            continue
    return None


def _violations(status: status_pb2.Status) -> list[FieldViolation]:
    """Refused fields and used-up quotas, which read alike."""
    bad = _detail(status, error_details_pb2.BadRequest)
    quota = _detail(status, error_details_pb2.QuotaFailure)
    found = [FieldViolation(v.field, v.description) for v in bad.field_violations] if bad else []
    if quota:
        found += [FieldViolation(v.subject, v.description) for v in quota.violations]
    return found


def _request_id(status: status_pb2.Status, info: error_details_pb2.ErrorInfo | None) -> str:
    """The server's id of the request, where the error names it; empty otherwise."""
    request = _detail(status, error_details_pb2.RequestInfo)
    told = info.metadata.get("request_id", "") if info else ""
    return told or (request.request_id if request else "")


def _seconds(delay: Duration) -> float:
    return delay.seconds + delay.nanos / 1e9
