"""Serves the routes in the gateway's own event loop, with uvicorn under bounds of ours."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from common.grpc_options import MAX_METADATA_BYTES
from common.tls import ServerTls
from gateway.http.protocol import BoundedProtocol

# Beyond this many connections at once a new one is answered 503: each costs memory before it has said anything.
_MAX_CONNECTIONS = 4096
_BACKLOG = 1024
# For an exchange to end after its connection has gone.
_NOTICE_WITHIN_S = 0.5


class HttpServer:
    """One listening socket and what is served on it."""

    def __init__(self, app: Starlette, host: str, port: int, tls: ServerTls | None) -> None:
        """Binds at once, so that a taken port is an error at the start (OSError)."""
        self._socket = _bound(host.strip("[]"), port)
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            # The head's bound is gRPC's for metadata, and the request line beside it.
            h11_max_incomplete_event_size=MAX_METADATA_BYTES + 1024,
            backlog=_BACKLOG,
        )
        config.load()
        config.ssl = None if tls is None else tls.http_context()
        self._scheme = "http" if tls is None else "https"
        self._server = _Uvicorn(config)

    @property
    def url(self) -> str:
        """Where it is reached."""
        host, port = self._socket.getsockname()[:2]
        return (
            f"{self._scheme}://[{host}]:{port}"
            if ":" in host
            else f"{self._scheme}://{host}:{port}"
        )

    async def run(self) -> None:
        """Serve until ``stop``, or cancellation."""
        try:
            await self._server.serve([self._socket])
        finally:
            # Cancelled, it leaves its listener open.
            for listener in getattr(self._server, "servers", ()):
                listener.close()
            self._socket.close()

    def refuse(self) -> None:
        """No new connections; those that are open end with their answer."""
        self._server.should_exit = True

    async def stop(self, within_s: float) -> None:
        """Open exchanges may finish for so long, then they are cut off."""
        self.refuse()
        state = self._server.server_state
        await _all_end(state.tasks, within_s)
        for connection in [*state.connections]:
            connection.transport.abort()
        # They notice by themselves that nobody is there; cancelled at once, each would be logged as a failure.
        await _all_end(state.tasks, _NOTICE_WITHIN_S)
        for task in state.tasks:
            task.cancel()
        self._server.force_exit = True


async def _all_end(tasks: set[asyncio.Task[None]], within_s: float) -> None:
    """Wait for so long until there is none, also of those that begin meanwhile on connections that were there."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while tasks:
                await asyncio.wait([*tasks])


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the service runner's."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # A restarted gateway gets its port back; two gateways still cannot share one.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
