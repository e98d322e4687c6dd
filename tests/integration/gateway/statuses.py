"""Details of a failed call."""

import grpc.aio
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

DETAILS_KEY = "grpc-status-details-bin"


def details_of(error: grpc.aio.AioRpcError) -> dict[str, Message]:
    """The google.rpc details, by message name; their size is within what a trailer carries."""
    trailing = dict(error.trailing_metadata())
    data = trailing[DETAILS_KEY]
    assert isinstance(data, bytes)
    assert len(data) < 4096
    found: dict[str, Message] = {}
    for detail in status_pb2.Status.FromString(data).details:
        name = detail.TypeName().rpartition(".")[2]
        message = getattr(error_details_pb2, name)()
        assert detail.Unpack(message)
        found[name] = message
    return found


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The reason and its facts."""
    return details_of(error)["ErrorInfo"]


def bad_fields(error: grpc.aio.AioRpcError) -> set[str]:
    """The refused fields."""
    return {one.field for one in details_of(error)["BadRequest"].field_violations}


def violations(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """The refused fields, and why."""
    found = details_of(error)["BadRequest"].field_violations
    return {one.field: one.description for one in found}


def retry_s(error: grpc.aio.AioRpcError) -> float:
    """When to come back."""
    return details_of(error)["RetryInfo"].retry_delay.ToNanoseconds() / 1e9
