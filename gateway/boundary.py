"""The gateway's edge: whatever goes wrong inside leaves as a status with details, and never as a stack trace.

An interceptor around the handlers of our own services (health and reflection have none of our errors).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from common.clock import monotonic_s
from common.errors import (
    FieldViolation,
    HeadraceError,
    InternalFailure,
    InvalidRequest,
    Unauthenticated,
)
from common.grpc_options import COMPRESSED_FROM_BYTES
from common.logs import Log
from common.tallies import Spread
from common.telemetry_names import (
    ERROR_TYPE,
    RPC_METHOD,
    RPC_RESPONSE_STATUS_CODE,
    RPC_SYSTEM_NAME,
    SYSTEM_GRPC,
)
from common.wire.status import code_of, status_of
from gateway.asking import Handler, asked_message
from gateway.audit import AuditLog
from gateway.caller import MAX_ECHO_CHARS, Context, metadata_of
from gateway.held import HeldMessages
from gateway.message_size import SMALL_BYTES, MessageSizes
from gateway.patience import patient

DETAILS_KEY = "grpc-status-details-bin"
ECHO_KEY = "x-request-id"
_OURS = "/headrace.v1."
_ADMIN = "/headrace.v1.AdminService/"
# A status waits behind the messages before it, and so for a client that does not read.
_TOLD_WITHIN_S = 1.0
_SUBJECTS = ("tenant", "key_id", "worker_id", "request_id", "level", "name")


class _Refused(Exception):
    """A call ends with this error's status."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(error.reason)
        self.error = error


Admit = Callable[[str, Sequence[tuple[str, str]]], Awaitable[None]]
Parse = Callable[[bytes], Any]
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A request as it came: large ones are looked at before they are parsed, and broken ones get a status of ours."""

    data: bytes


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps each of our handlers once, when it is looked up."""

    def __init__(
        self,
        log: Log,
        duration: Spread,
        admit: Admit,
        audit: AuditLog,
        held: HeldMessages,
    ) -> None:
        """``log`` gets what was not expected, ``duration`` each call; ``held`` bounds what all hold.

        ``admit`` raises for a call of a method by somebody who may not make it: before anything else is done, so that
        no method can forget to ask.
        """
        self._duration = duration
        self._audit = audit
        self._log = log
        self._admit = admit
        self._held = held
        self._sizes = MessageSizes()
        self._guarded: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """The handler of a call, guarded."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or not method.startswith(_OURS):
            return handler
        # Made at a method's first call; a server of its own has its own handlers, which this must not mix up.
        known = self._guarded.get(method)
        if known is None or known[0] is not handler:
            known = self._guarded[method] = (handler, self._guarding(method, handler))
        return known[1]

    def _guarding(self, method: str, handler: Handler) -> Handler:
        parse: Parse = handler.request_deserializer
        asked = _input_of(method)

        async def answer(request: Any, context: Context) -> None:
            await _write(await handler.unary_unary(request, context), context)

        behaviour = handler.unary_stream if handler.response_streaming else answer

        async def guarded(_: Any, context: Context) -> None:
            began_s, code = monotonic_s(), grpc.StatusCode.CANCELLED
            request: Message | None = None
            share = self._held.share()

            async def parsed() -> Any:
                nonlocal request
                came = await asked_message(context)
                if isinstance(came, Unparsed):
                    share.hold(len(came.data))
                    came = await self._parsed(came.data, asked, parse)
                request = came
                return came

            try:
                if not handler.response_streaming:
                    context.set_compression(grpc.Compression.Gzip)  # before the first metadata
                with share:
                    await self._guard(method, behaviour, parsed, context)
                code = grpc.StatusCode.OK
                self._audit_order(method, request, "ok")
            except _Refused as refused:
                code = code_of(refused.error)
                if isinstance(refused.error, Unauthenticated):
                    self._audit.write(
                        "unauthenticated", method=method, decision=refused.error.reason
                    )
                else:
                    self._audit_order(method, request, refused.error.reason)
                await abort(context, refused.error)
            finally:
                self._duration.record(monotonic_s() - began_s, _labels(method, code))

        # On the wire a question and an answer are streams of one message; as such they are not waited for without end.
        return handler._replace(
            request_deserializer=partial(_parse_small, parse),
            request_streaming=True,
            response_streaming=True,
            unary_unary=None,
            unary_stream=None,
            stream_stream=guarded,
        )

    async def _parsed(self, data: bytes, asked: Descriptor, parse: Parse) -> Any:
        await self._sizes.check(data, asked)
        try:
            return parse(data)
        except DecodeError as error:
            raise InvalidRequest([FieldViolation("request", "is not a valid message")]) from error

    def _audit_order(self, method: str, request: Message | None, decision: str) -> None:
        """What an operator ordered, if it was read; looking changes nothing, and is not on record."""
        name = method.rpartition("/")[2]
        if method.startswith(_ADMIN) and not name.startswith(("List", "Get", "Watch")):
            fields = [] if request is None else request.ListFields()
            given = {field.name: value for field, value in fields}
            subject = {key: str(given[key]) for key in _SUBJECTS if key in given}
            self._audit.write("ordered", method=method, decision=decision, **subject)

    async def _guard(
        self,
        method: str,
        behaviour: Callable[..., Any],
        parsed: Callable[[], Awaitable[Any]],
        context: Context,
    ) -> None:
        try:
            await _echo(context)
            await self._admit(method, metadata_of(context))
            await behaviour(await parsed(), context)
            return
        except HeadraceError as error:
            failure = error
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge: told to the caller without its inside
            self._log.error("call failed", method=method, exc_info=error)
            failure = InternalFailure("internal error", reason="INTERNAL")
        raise _Refused(failure)


def _labels(method: str, code: grpc.StatusCode) -> dict[str, str]:
    """Of a call's duration; a failure of whatever kind is one by its code."""
    labels = {
        RPC_SYSTEM_NAME: SYSTEM_GRPC,
        RPC_METHOD: method[1:],
        RPC_RESPONSE_STATUS_CODE: code.name,
    }
    return labels if code is grpc.StatusCode.OK else {**labels, ERROR_TYPE: code.name}


def _parse_small(parse: Parse, data: bytes) -> Any:
    try:
        return parse(data) if len(data) <= SMALL_BYTES else Unparsed(data)
    except DecodeError:
        return Unparsed(data)


def _input_of(method: str) -> Descriptor:
    """What a method of ours is asked with."""
    service, _, name = method[1:].partition("/")
    methods = descriptor_pool.Default().FindServiceByName(service).methods_by_name
    found: Descriptor = methods[name].input_type
    return found


async def abort(context: Context, error: HeadraceError) -> NoReturn:
    """End the call with the error's status, beside the trailing metadata that was set before."""
    status = status_of(error)
    trailing = [*(context.trailing_metadata() or ()), (DETAILS_KEY, status.SerializeToString())]
    try:
        async with asyncio.timeout(_TOLD_WITHIN_S):
            await context.abort(code_of(error), status.message, tuple(trailing))
    except TimeoutError:
        # gRPC has the status, and sends it behind what the client has not read yet; nothing here need wait for that.
        raise asyncio.CancelledError from None


def _echo_of(context: Context) -> tuple[tuple[str, str], ...]:
    for key, value in context.invocation_metadata() or ():
        if key == ECHO_KEY and isinstance(value, str):
            return ((ECHO_KEY, value[:MAX_ECHO_CHARS]),)
    return ()


async def _echo(context: Context) -> None:
    if echo := _echo_of(context):
        await context.send_initial_metadata(echo)


async def _write(answer: Message, context: Context) -> None:
    """A whole answer, compressed if it is large and the client takes that; events of streams are small.

    Raises:
        Aborted: the client does not read it.
    """
    if answer.ByteSize() < COMPRESSED_FROM_BYTES:
        context.disable_next_message_compression()
    elif not _echo_of(context):
        # grpcio forgets what was set where the first metadata goes with the answer.
        await context.send_initial_metadata(())
    async with patient(context.write) as write:
        await write(answer)
