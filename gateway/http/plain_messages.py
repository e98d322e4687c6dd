"""The plain API's messages: the contract's own, as JSON."""

from typing import Any

from google.protobuf.json_format import MessageToDict, MessageToJson

from common.errors import FieldViolation, InvalidRequest
from gateway.http.request_forms import NATIVE, Look, read_request
from headrace.v1 import inference_service_pb2 as pb


def read_item(index: int, item: Any, look: Look) -> pb.GenerateRequest:
    """A request of a batch.

    Raises:
        InvalidRequest: it is none.
    """
    path = f"requests[{index}]"
    if not isinstance(item, dict):
        raise InvalidRequest([FieldViolation(path, "must be an object")])
    asked = read_request(NATIVE, item, f"{path}.", look)
    if asked.is_stream:
        raise InvalidRequest([FieldViolation(f"{path}.stream", "must not be set in a batch")])
    return asked.request


def plain(message: Any) -> dict[str, Any]:
    """A message as JSON's objects."""
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found


def plain_event(event: pb.GenerateStreamResponse) -> bytes:
    """An event as lines of a stream."""
    text = MessageToJson(event, preserving_proto_field_name=True, indent=None)
    return b"data: " + text.encode() + b"\n\n"
