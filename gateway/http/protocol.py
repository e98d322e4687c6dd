"""One HTTP connection: uvicorn's protocol, with bounds on peers that are slow to ask or to read.

Only whole heads reach the application, only a client that reads keeps its stream: everything else is cut off here,
where neither a task nor a request is held for it.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gateway.patience import READ_WITHIN_S

HEAD_WITHIN_S = 10.0
"""From the connection, or the answer before, to the end of the next head. Also what an answered body may still take."""


# So many pieces of a body may be of any size, the others have to be of this one on average.
_FREE_PIECES = 512
_PIECE_BYTES = 256


class BoundedConnection(h11.Connection):
    """Reads no body that comes in crumbs: each chunk costs as much as a kilobyte, and a packet can hold thousands."""

    def __init__(self, most_head_bytes: int | None) -> None:
        """For a server's side."""
        if most_head_bytes is None:
            super().__init__(h11.SERVER)
        else:
            super().__init__(h11.SERVER, most_head_bytes)
        self._num_pieces = self._num_bytes = 0

    def next_event(self) -> Any:
        """The next event, as ever.

        Raises:
            RemoteProtocolError: the peer breaks the rules, or this one.
        """
        event = super().next_event()
        match event:
            case h11.Request():
                self._num_pieces = self._num_bytes = 0
            case h11.Data():
                self._num_pieces += 1
                self._num_bytes += len(event.data)
                if self._num_pieces > _FREE_PIECES + self._num_bytes // _PIECE_BYTES:
                    raise h11.RemoteProtocolError("the body's chunks are too small")
        return event


class BoundedProtocol(H11Protocol):
    """Adds two timers to uvicorn's own for connections kept alive."""

    head_within_s = HEAD_WITHIN_S
    read_within_s = READ_WITHIN_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """No timer runs."""
        super().__init__(*args, **kwargs)
        self.conn = BoundedConnection(self.config.h11_max_incomplete_event_size)
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer that says nothing is not waited for long."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """The head's timer runs on through its pieces, and ends with it."""
        super().data_received(data)
        if self._is_answering:
            self._head_timer = _stop(self._head_timer)
        else:
            self._await_head()

    def on_response_complete(self) -> None:
        """A body that is still coming, or the next head, has its time from now on."""
        super().on_response_complete()
        if not self._is_answering:
            self._await_head()

    def pause_writing(self) -> None:
        """The client reads more slowly than the answer comes."""
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.read_within_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        self._read_timer = _stop(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to bound."""
        super().connection_lost(exc)
        self._head_timer = _stop(self._head_timer)
        self._read_timer = _stop(self._read_timer)

    def send_400_response(self, msg: str) -> None:
        """A head that is no head, in the form of all errors."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        error = {"type": "invalid_request_error", "param": None, "code": "malformed_http"}
        message = "not a valid HTTP request, its head is too long, or its body comes in too many small chunks"
        body = json.dumps({"error": {"message": message, **error}}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # its declaration does not say that there may be none
        return cycle is not None and not cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_within_s, self.transport.abort)


def _stop(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
