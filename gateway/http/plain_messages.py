"""The plain API's messages: the contract's own, as JSON."""

import asyncio
from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict, MessageToJson

from common.errors import FieldViolation, HeadraceError, InvalidRequest
from common.wire.status import request_error_of
from gateway.http.errors import RefusedAsSent
from gateway.http.request_forms import NATIVE, Look, read_request
from headrace.v1 import inference_service_pb2 as pb


async def read_items(
    items: Sequence[Any], look: Look
) -> tuple[dict[int, pb.GenerateRequest], dict[int, dict[str, Any]]]:
    """The requests of a batch, and the outcomes of those that are none: by their places."""
    # Each may take a millisecond or more, so others get their turn in between.
    asked: dict[int, pb.GenerateRequest] = {}
    outcomes: dict[int, dict[str, Any]] = {}
    for index, item in enumerate(items):
        try:
            asked[index] = _read_item(item, look)
        except HeadraceError as error:
            refused = pb.BatchGenerateResponse(error=request_error_of(error))
            outcomes[index] = outcome(index, refused)
        await asyncio.sleep(0)
    return asked, outcomes


def _read_item(item: Any, look: Look) -> pb.GenerateRequest:
    if not isinstance(item, dict):
        raise RefusedAsSent([FieldViolation("request", "must be an object")])
    if item.get("stream") is not None or item.get("stream_options") is not None:
        raise RefusedAsSent([FieldViolation("stream", "must not be set in a batch")])
    return read_request(NATIVE, item, look=look).request


def outcome(index: int, found: pb.BatchGenerateResponse) -> dict[str, Any]:
    """What became of a request of a batch, with its fields under the names of the JSON."""
    violations = found.error.field_violations
    if violations:
        for one in violations:
            one.field = NATIVE.rename(one.field)
        named = [FieldViolation(one.field, one.description) for one in violations]
        found.error.message = InvalidRequest(named).message
    found.index = index
    return {"index": index, **plain(found)}


def plain(message: Any) -> dict[str, Any]:
    """A message as JSON's objects."""
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found


def plain_event(event: pb.GenerateStreamResponse) -> bytes:
    """An event as lines of a stream."""
    text = MessageToJson(event, preserving_proto_field_name=True, indent=None)
    return b"data: " + text.encode() + b"\n\n"
