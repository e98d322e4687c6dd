"""One exchange: a body read within bounds, an answer as long as the client is there, and errors in one form."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from common.errors import HeadraceError, InternalFailure, Unauthenticated
from common.grpc_options import MAX_METADATA_BYTES
from common.logs import Log
from gateway.asking import ASK_WITHIN_S
from gateway.audit import AuditLog
from gateway.caller import MAX_ECHO_CHARS
from gateway.http.errors import (
    HttpRefusal,
    Rename,
    body_of,
    headers_of,
    refusal_body,
    status_of,
)
from gateway.http.holding import share_of
from gateway.http.json_size import JsonSizes
from gateway.http.json_values import parse_object
from headrace.v1 import inference_service_pb2 as pb

_MAX_HEAD_BYTES = MAX_METADATA_BYTES
_JSON = "application/json"
_NUMBERS_AT_ONCE = 8192
REQUEST_ID = "x-request-id"

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
WriteEvent = Callable[[pb.GenerateStreamResponse], Awaitable[None]]


class ClientGone(Exception):
    """Nobody is left to answer."""


class Nothing(Response):
    """The answer to a client that has gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say nothing."""


async def read_object(request: Request, max_bytes: int, sizes: JsonSizes) -> dict[str, Any]:
    """The JSON object that was sent, if it is not too long and does not take too long.

    Raises:
        HttpRefusal: it is, or it is something else.
        InvalidRequest: it is no JSON object, or holds too much.
        QueueFull: the bodies of others do.
        ClientDisconnect: the client left.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        # It also keeps web pages out: a browser asks first before it sends this type elsewhere.
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "CONTENT_TYPE", f"content-type must be {_JSON}"
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "CONTENT_ENCODING", "bodies must not be compressed"
        )
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_long(max_bytes)
    body, share = bytearray(), share_of(request.scope)
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise _too_long(max_bytes)
                share.hold(len(body))
    except TimeoutError as error:
        message = f"the body must arrive within {ASK_WITHIN_S:g} s"
        raise HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, "BODY_TOO_SLOW", message) from error
    whole = bytes(body)
    await sizes.check(whole)
    return parse_object(whole)


def echo_of(request: Request) -> str:
    """The id that the answer bears: the client's own, or one made here for the whole exchange."""
    echo: str = request.scope.get("headrace.echo", "")
    if not echo:
        echo = request.headers.get(REQUEST_ID, "")[:MAX_ECHO_CHARS]
        if not (echo and echo.isascii() and echo.isprintable()):
            echo = secrets.token_hex(16)
        request.scope["headrace.echo"] = echo
    return echo


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` answers, which is cancelled when the client leaves.

    Raises:
        ClientGone: it left.
    """
    working = asyncio.create_task(work, name="http call")
    watching = asyncio.create_task(_disconnected(request.receive), name="http client")
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def written(numbers: Sequence[int]) -> bytes:
    """A list of numbers as JSON; of a million of them others get their turn in between."""
    pieces = []
    for at in range(0, len(numbers), _NUMBERS_AT_ONCE):
        pieces.append(",".join(map(str, numbers[at : at + _NUMBERS_AT_ONCE])))
        await asyncio.sleep(0)
    return f"[{','.join(pieces)}]".encode()


def answer(
    content: Any,
    request: Request,
    headers: Mapping[str, str] | None = None,
    *,
    tokens: bytes | None = None,
) -> Response:
    """A JSON answer; ``tokens`` are a member of it that was written before."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if tokens is not None:
        body = b'%s,"tokens":%s}' % (body[:-1], tokens)
    all_headers = {REQUEST_ID: echo_of(request), **(headers or {})}
    return Response(body, media_type=_JSON, headers=all_headers)


class Guard:
    """Around each endpoint: whatever goes wrong inside leaves as an answer, and never as a stack trace."""

    def __init__(self, log: Log, audit: AuditLog) -> None:
        """``log`` gets what was not expected, ``audit`` who was not let in."""
        self._log = log
        self._audit = audit

    def around(self, endpoint: Endpoint, rename: Rename = str) -> Endpoint:
        """The endpoint, guarded; ``rename`` is for its fields."""

        async def guarded(request: Request) -> Response:
            try:
                _check_head(request)
                return await endpoint(request)
            except HeadraceError as error:
                if isinstance(error, Unauthenticated):
                    path = request.url.path
                    self._audit.write("unauthenticated", method=path, decision=error.reason)
                return error_answer(error, request, rename)
            except HttpRefusal as refusal:
                body = refusal_body(refusal)
                headers = {REQUEST_ID: echo_of(request), "x-should-retry": "false"}
                return Response(body, refusal.status, headers, _JSON)
            except (ClientGone, ClientDisconnect):
                return Nothing()
            except Exception as error:  # noqa: BLE001 - the edge: told to the caller without its inside
                self._log.error("call failed", path=request.url.path, exc_info=error)
                return error_answer(_internal(), request, rename)

        return guarded

    def error_of(self, error: Exception, path: str) -> HeadraceError:
        """What a client is told of an error in the middle of a stream."""
        if isinstance(error, HeadraceError):
            return error
        self._log.error("call failed", path=path, exc_info=error)
        return _internal()


class EventStream(Response, Generic[T]):
    """Server-sent events. Until the first of them the status is open: a refusal is an ordinary error answer."""

    def __init__(
        self,
        request: Request,
        guard: Guard,
        produce: Callable[[Callable[[T], Awaitable[None]]], Coroutine[Any, Any, None]],
        encode: Callable[[T], bytes],
        *,
        done: bytes = b"",
        rename: Rename = str,
    ) -> None:
        """``produce`` writes events, which ``encode`` turns into lines; ``done`` ends a stream that went well."""
        super().__init__()
        self._request = request
        self._guard = guard
        self._produce = produce
        self._encode = encode
        self._done = done
        self._rename = rename
        self._is_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end, or until the client leaves."""
        with suppress(ClientGone):
            await while_connected(self._request, self._run(scope, receive, send))

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(event: T) -> None:
            lines = self._encode(event)
            if lines:
                await self._begin(send)
                await _send_body(send, lines, more=True)

        try:
            await self._produce(write)
        except Exception as caught:  # noqa: BLE001 - told to the client, and logged if unexpected
            error = self._guard.error_of(caught, self._request.url.path)
            if not self._is_begun:
                response = error_answer(error, self._request, self._rename)
                await response(scope, receive, send)
                return
            await _send_body(send, b"data: " + body_of(error, self._rename) + b"\n\n", more=False)
            return
        await _send_body(send, self._done, more=False)

    async def _begin(self, send: Send) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            # Proxies that would collect the stream are asked not to.
            "x-accel-buffering": "no",
            REQUEST_ID: echo_of(self._request),
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": raw})


def error_answer(error: HeadraceError, request: Request, rename: Rename) -> Response:
    """An error as an answer of its own."""
    headers = {REQUEST_ID: echo_of(request), **headers_of(error)}
    return Response(body_of(error, rename), status_of(error), headers, _JSON)


def _check_head(request: Request) -> None:
    """The bound of gRPC's metadata, counted as HTTP/2 counts; a head that came in one piece was not counted before."""
    if sum(len(name) + len(value) + 32 for name, value in request.headers.raw) > _MAX_HEAD_BYTES:
        raise HttpRefusal(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "HEADERS_TOO_LARGE",
            f"headers must have at most {_MAX_HEAD_BYTES} bytes",
        )


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_long(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "BODY_TOO_LARGE",
        f"the body must have at most {max_bytes} bytes",
    )


def _internal() -> InternalFailure:
    return InternalFailure("internal error", reason="INTERNAL")
