"""A stream of one request, read by threads: continued after a break, cancelled when closed."""

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

import grpc

from headrace.client.channels import Channels
from headrace.client.cursor import Cursor
from headrace.client.errors import Cancelled, HeadraceError
from headrace.client.following import Following, event_of
from headrace.client.reattach import Reattach
from headrace.client.status import error_from_rpc
from headrace.client.trace import TraceContext
from headrace.v1 import inference_service_pb2 as pb


class _Call(Protocol):
    """A running GenerateStream or Attach."""

    def __next__(self) -> pb.GenerateStreamResponse | pb.AttachResponse: ...
    def cancel(self) -> bool: ...


class TokenStream(Following):
    """The events of one request. Iterate it, or its ``texts()``; closing it cancels the request."""

    def __init__(
        self,
        channels: Channels,
        *,
        cursor: Cursor,
        reattach: Reattach,
        trace: TraceContext,
        timeout_s: float | None,
        request: pb.GenerateRequest | None,
    ) -> None:
        """Starts the call: GenerateStream with ``request``, or Attach when there is none."""
        super().__init__(cursor, reattach, trace, timeout_s, request)
        self._channels = channels
        self._metadata = channels.metadata(trace)
        self._closed = threading.Event()
        self._over = False
        self._used = 0
        self._call: _Call = self._begin()

    def __iter__(self) -> Iterator[pb.GenerateStreamResponse]:
        """The events that are left."""
        return self

    def __next__(self) -> pb.GenerateStreamResponse:
        """The next event.

        Raises:
            HeadraceError: the request failed, or the stream broke and could not be continued.
        """
        while not self._over:
            try:
                event = self._take(event_of(next(self._call)))
            except StopIteration:
                self._over = True
                self._check_end()
            except grpc.RpcError as broken:
                self._recover(error_from_rpc(broken, self.request_id), broken)
            except HeadraceError:
                self.close()
                raise
            else:
                if event is not None:
                    return event
        raise StopIteration

    def texts(self, index: int = 0) -> Iterator[str]:
        """The text of one choice, piece by piece."""
        for event in self:
            if event.HasField("delta") and event.delta.index == index and event.delta.text:
                yield event.delta.text

    def close(self) -> None:
        """Leaves the stream: an unfinished request of which this is the last follower is cancelled."""
        self._over = True
        self._closed.set()
        self._call.cancel()

    def __enter__(self) -> Self:
        """Closes at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()

    def _recover(self, error: HeadraceError, cause: grpc.RpcError) -> None:
        """Goes on where that can help; otherwise the stream is over."""
        if self._closed.is_set():
            self._over = True
            raise Cancelled(
                "the stream was closed", code="CANCELLED", request_id=self.request_id
            ) from cause
        self._channels.note(error, self._used)
        if self._cursor.answered:
            # The connection broke between the last event and the end of the call: nothing is missing.
            self._over = True
            return
        pause_s = self._pause_s(error)
        if pause_s is None:
            self._over = True
            raise self._given_up(error) from cause
        if not self._closed.wait(pause_s):
            self._call = self._begin()

    def _begin(self) -> _Call:
        """Where it is known that the request was accepted, it is followed."""
        if self._request is None or self.request_id is not None:
            return self._attach()
        return self._generate(self._request)

    def _generate(self, request: pb.GenerateRequest) -> _Call:
        self._used = self._channels.current
        stub = self._channels.inference()
        return stub.GenerateStream(request, timeout=self._left_s(), metadata=self._metadata)

    def _attach(self) -> _Call:
        self._used = self._channels.current
        stub = self._channels.inference()
        return stub.Attach(self._attach_request(), timeout=self._left_s(), metadata=self._metadata)
