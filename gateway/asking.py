"""How long a client is waited for until it has asked: the bound of gRPC and HTTP, and the wait of gRPC, which has none itself."""

import asyncio
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from common.errors import DeadlineExceeded, FieldViolation, InvalidRequest
from gateway.caller import Context

ASK_WITHIN_S = 30.0
"""From a call's head to the end of its message; a slow line brings four megabytes in that time."""

Handler = Any  # grpc.RpcMethodHandler: its stubs know nothing of asyncio


async def asked_message(context: Context) -> Any:
    """The one message of a call whose handler takes a stream of them, which is the same on the wire.

    Raises:
        DeadlineExceeded: it did not come in time.
        InvalidRequest: it never will, or is none.
    """
    # Never cancelled: gRPC goes on writing to where it was to read to. The call's end is the end of it.
    reading = asyncio.ensure_future(context.read())
    reading.add_done_callback(_see)
    done, _ = await asyncio.wait({reading}, timeout=ASK_WITHIN_S)
    if not done:
        raise DeadlineExceeded(
            f"the call's message must arrive within {ASK_WITHIN_S:g} s",
            reason="MESSAGE_TOO_SLOW",
            metadata={"stage": "message"},
        )
    try:
        message = reading.result()
    except DecodeError as error:
        raise InvalidRequest([FieldViolation("request", "is not a valid message")]) from error
    if message is grpc.aio.EOF:
        raise InvalidRequest([FieldViolation("request", "is missing")])
    return message


def _see(reading: "asyncio.Future[Any]") -> None:
    """Its error is nobody's where the call has ended."""
    if not reading.cancelled():
        reading.exception()
