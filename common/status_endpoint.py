"""``/metrics``, ``/livez`` and ``/readyz`` over HTTP, from a thread of their own, and what a service adds to them.

They answer while the event loop is stuck, which is when they matter.
"""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar, Self

from common.metrics import Metrics
from common.readiness import Liveness, Readiness

# A scraper that sends or reads nothing for this long is cut off.
_IDLE_TIMEOUT_S = 5.0
# How often the serving thread looks whether it should stop; a stop waits up to this long.
_STOP_POLL_S = 0.1
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"

# Nothing of this port is to be kept, framed, guessed at, or mixed with what lies elsewhere.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'self'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Answer = tuple[HTTPStatus, bytes, str]
Pages = Callable[[str, Mapping[str, str]], Answer]
"""Answers GET of a path (with its query), given the headers by lower-case name. Called from threads of the endpoint."""


class StatusEndpoint:
    """Serves between ``__enter__`` and ``__exit__``."""

    def __init__(
        self, host: str, port: int, metrics: Metrics, readiness: Readiness, liveness: Liveness
    ) -> None:
        """Binds at once, so that a taken port is an error at the start (OSError)."""
        self._metrics = metrics
        self._readiness = readiness
        self._liveness = liveness
        self._pages: Mapping[str, Pages] = {}
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            """Hands GET to the endpoint."""

            timeout: ClassVar[float | None] = _IDLE_TIMEOUT_S
            server_version = "headrace"
            sys_version = ""

            def do_GET(self) -> None:
                """Answer one request."""
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, body, content_type = answer(self.path, headers)
                self.send_response(status)
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """A scrape every few seconds is no event."""

        self._server = _Server(host, port, Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=[_STOP_POLL_S],
            name="status-endpoint",
            daemon=True,
        )

    @property
    def address(self) -> str:
        """``host:port`` that it is bound to."""
        host, port = self._server.server_address[:2]
        return (
            f"[{host!s}]:{port}"
            if self._server.address_family == socket.AF_INET6
            else f"{host!s}:{port}"
        )

    def __enter__(self) -> Self:
        """Start serving."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def mount(self, name: str, pages: Pages) -> None:
        """Let ``pages`` answer ``/name`` and everything below it."""
        self._pages = {**self._pages, name: pages}

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        """What GET ``path`` is answered with."""
        place = path.partition("?")[0]
        pages = self._pages.get(place.split("/", 2)[1]) if place.startswith("/") else None
        if pages is not None:
            return pages(path, headers)
        match place:
            case "/metrics":
                body, content_type = self._metrics.scrape(headers.get("accept", ""))
                return HTTPStatus.OK, body, content_type
            case "/livez":
                return self._livez()
            case "/readyz":
                return self._readyz()
        known = ", ".join(["/metrics", "/livez", "/readyz", *(f"/{name}" for name in self._pages)])
        return HTTPStatus.NOT_FOUND, f"there are {known}\n".encode(), _TEXT

    def _livez(self) -> Answer:
        if self._liveness.alive:
            return HTTPStatus.OK, b"ok\n", _TEXT
        text = f"the event loop has not turned for {self._liveness.silence_s:.0f} s\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, text.encode(), _TEXT

    def _readyz(self) -> Answer:
        state = {
            "ready": self._readiness.ready,
            "conditions": {
                name: asdict(condition) for name, condition in self._readiness.conditions.items()
            },
        }
        status = HTTPStatus.OK if state["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
        return status, json.dumps(state).encode() + b"\n", _JSON


class _Server(ThreadingHTTPServer):
    # A stop does not wait for a scraper that idles; its thread ends with the process.
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind without the name look-up of HTTPServer, which can take seconds where DNS is slow."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hangs up is no event either."""
