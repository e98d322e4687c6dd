"""How long HTTP exchanges take, streams to their last byte, by route and status: around everything else."""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.clock import monotonic_s
from common.tallies import Spread
from common.telemetry_names import HTTP_METHOD, HTTP_ROUTE, HTTP_STATUS
from gateway.http.errors import CLIENT_GONE

_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "_OTHER"
"""The conventions' word for what clients made up: it becomes no label."""


class Durations:
    """Middleware."""

    def __init__(self, app: ASGIApp, duration: Spread, routes: Collection[str]) -> None:
        """``routes`` are the paths there are; one ends with a parameter, ``/{name}``."""
        self._app = app
        self._duration = duration
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and tell how long it took."""
        began_s, status = monotonic_s(), CLIENT_GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else _OTHER
            labels = {
                HTTP_METHOD: method,
                HTTP_ROUTE: self._route(scope["path"]),
                HTTP_STATUS: str(int(status)),
            }
            self._duration.record(monotonic_s() - began_s, labels)

    def _route(self, path: str) -> str:
        if path in self._routes:
            return path
        parent = path.rpartition("/")[0]
        while parent:
            for route in self._routes:
                if route.startswith(f"{parent}/{{"):
                    return route
            parent = parent.rpartition("/")[0]
        return _OTHER
