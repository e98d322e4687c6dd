"""Answers browsers: the console's files, and the JSON that they ask for again and again.

The files hold no secrets and are for everybody; JSON is for operators, whose browser sends the admin key along. Threads
of the status endpoint ask; what they look at belongs to the event loop, so it is read there.
"""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, unquote

from common.errors import HeadraceError, NotFound, Unauthenticated
from common.server import Runtime
from common.status_endpoint import Answer
from common.streams.node import Node
from gateway.caller import Callers
from gateway.catalogue import Catalogue
from gateway.console.overview import Overview
from gateway.console.timelines import Timelines
from gateway.queue_views import QueueViews

NAME = "console"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_JSON = "application/json"
_ANSWER_WITHIN_S = 3.0


class Console:
    """One gateway's console."""

    def __init__(
        self,
        gateway_id: str,
        node: Node,
        catalogue: Catalogue,
        views: QueueViews,
        callers: Callers,
    ) -> None:
        """To be made inside the event loop that the others are used in."""
        self._loop = asyncio.get_running_loop()
        self._callers = callers
        self._overview = Overview(gateway_id, catalogue, views)
        self._timelines = Timelines(node, views)
        folder = resources.files(__package__).joinpath("static")
        self._files = {
            file.name: (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
            for file in folder.iterdir()
        }

    def show(self, runtime: Runtime) -> None:
        """On the status endpoint, from now on."""
        runtime.mount(NAME, self.answer)

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        """What GET ``path`` is answered with."""
        place, _, query = path.removeprefix(f"/{NAME}").partition("?")
        name = place.strip("/")
        if name == "overview":
            return self._operator(headers, self._overview.now())
        if name == "request":
            wanted = parse_qs(query).get("id", [""])[0]
            return self._operator(headers, self._timelines.of(wanted))
        found = self._files.get(unquote(name) or "index.html")
        if found is None:
            return HTTPStatus.NOT_FOUND, b"the console has no such file\n", "text/plain"
        return HTTPStatus.OK, *found

    def _operator(
        self, headers: Mapping[str, str], look: Coroutine[Any, Any, dict[str, Any]]
    ) -> Answer:
        try:
            self._callers.require_operator([*headers.items()])
            looking = asyncio.run_coroutine_threadsafe(look, self._loop)
        except Unauthenticated as error:
            look.close()
            return _refusal(HTTPStatus.UNAUTHORIZED, str(error))
        except RuntimeError:  # the loop is closed: the process is about to end
            look.close()
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway stops")
        try:
            found = looking.result(_ANSWER_WITHIN_S)
        except TimeoutError:
            looking.cancel()
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the gateway does not answer")
        except NotFound as error:
            return _refusal(HTTPStatus.NOT_FOUND, str(error))
        except HeadraceError as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return HTTPStatus.OK, json.dumps(found).encode(), _JSON


def _refusal(status: HTTPStatus, why: str) -> Answer:
    return status, json.dumps({"error": why}).encode(), _JSON
