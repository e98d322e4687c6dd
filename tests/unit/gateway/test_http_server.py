"""The HTTP server's end: what is still open is cut off, and that is no failure."""

import asyncio
import contextlib
import logging

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.http.exchange import ClientGone, Nothing, while_connected
from gateway.http.server import HttpServer

pytestmark = pytest.mark.timeout(60)


async def connected(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, as soon as it listens."""
    host, port = server.url.removeprefix("http://").split(":")
    while True:
        try:
            return await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def test_an_exchange_that_outlasts_the_stop_ends_as_if_its_client_had_left(
    caplog: pytest.LogCaptureFixture,
):
    """Its connection is cut, its work is cancelled, and no error is logged; the server ends."""
    begun, ends = asyncio.Event(), list[str]()

    async def work_for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def endpoint(request: Request) -> Response:
        try:
            await while_connected(request, work_for_ever())
        except ClientGone:
            ends.append("client gone")
        return Nothing()

    server = HttpServer(Starlette(routes=[Route("/", endpoint)]), "127.0.0.1", 0, None)
    with caplog.at_level(logging.ERROR, logger="uvicorn.error"):
        serving = asyncio.create_task(server.run())
        reader, writer = await connected(server)
        writer.write(b"GET / HTTP/1.1\r\nhost: mill\r\n\r\n")
        await begun.wait()
        await server.stop(within_s=0.0)
        with contextlib.suppress(ConnectionResetError):  # the hard form of the same
            assert await reader.read() == b""
        await serving
        writer.close()
    assert ends == ["cancelled", "client gone"]
    assert caplog.records == []
