"""A stream of one request, read by asyncio: continued after a break, cancelled when closed."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

import grpc

from headrace.client.aio_channels import AioChannels
from headrace.client.cursor import Cursor
from headrace.client.errors import Cancelled, HeadraceError
from headrace.client.following import Following, event_of
from headrace.client.moving import TRIAL_S
from headrace.client.reattach import Reattach
from headrace.client.status import error_from_rpc
from headrace.client.trace import TraceContext
from headrace.v1 import inference_service_pb2 as pb


class _Call(Protocol):
    """A running GenerateStream or Attach."""

    async def read(self) -> object: ...
    def cancel(self) -> bool: ...


class AsyncTokenStream(Following):
    """The events of one request. Iterate it, or its ``texts()``; closing it cancels the request.

    One task reads it. A reader that is cancelled closes it.
    """

    def __init__(
        self,
        channels: AioChannels,
        *,
        cursor: Cursor,
        reattach: Reattach,
        trace: TraceContext,
        timeout_s: float | None,
        request: pb.GenerateRequest | None,
    ) -> None:
        """Starts the call: GenerateStream with ``request``, or Attach when there is none."""
        num_targets = len(channels.targets.addresses)
        super().__init__(cursor, reattach, trace, timeout_s, request, num_targets)
        self._channels = channels
        self._metadata = channels.metadata(trace)
        self._closed = asyncio.Event()
        self._over = False
        self._used = 0
        self._trial: _Call | None = None
        self._taken_up: pb.GenerateStreamResponse | None = None
        self._call: _Call = self._begin()

    def __aiter__(self) -> AsyncIterator[pb.GenerateStreamResponse]:
        """The events that are left."""
        return self

    async def __anext__(self) -> pb.GenerateStreamResponse:
        """The next event.

        Raises:
            HeadraceError: the request failed, or the stream broke and could not be continued.
        """
        while not self._over:
            try:
                event = await self._next_event()
            except (HeadraceError, asyncio.CancelledError):
                self.close()
                raise
            if event is not None:
                return event
        raise StopAsyncIteration

    async def texts(self, index: int = 0) -> AsyncIterator[str]:
        """The text of one choice, piece by piece."""
        async for event in self:
            if event.HasField("delta") and event.delta.index == index and event.delta.text:
                yield event.delta.text

    def close(self) -> None:
        """Leaves the stream: an unfinished request of which this is the last follower is cancelled."""
        self._over = True
        self._closed.set()
        for call in (self._call, self._trial):
            if call is not None:
                call.cancel()

    async def __aenter__(self) -> Self:
        """Closes at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()

    async def _next_event(self) -> pb.GenerateStreamResponse | None:
        """Reads once; None for what was delivered before, and at the end or after a continuation."""
        try:
            received, self._taken_up = self._taken_up, None
            if received is None:
                received = await self._read(self._call)
        except grpc.aio.AioRpcError as broken:
            await self._recover(error_from_rpc(broken, self.request_id), broken)
            return None
        if received is None:
            self._over = True
            self._check_end()
            return None
        event = self._take(received)
        if event is not None:
            await self._leave_if_cut_off(event)
        return event

    async def _read(self, call: _Call) -> pb.GenerateStreamResponse | None:
        """The next event as it comes; None behind the last."""
        try:
            message = await call.read()
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if self._closed.is_set() and task is not None and not task.cancelling():
                # gRPC tells a reader of a closed call that it was cancelled; the task was not.
                raise self._closed_error() from cancelled
            raise
        if message is grpc.aio.EOF:
            return None
        assert isinstance(message, pb.GenerateStreamResponse | pb.AttachResponse)
        return event_of(message)

    async def _leave_if_cut_off(self, event: pb.GenerateStreamResponse) -> None:
        """Goes on through another gateway where this one says that it has lost the queue, and stays where none can."""
        for target in self._others(event, self._used):
            call = self._trial = self._attach(target, self._attach_there())
            taken_up = await self._try(call)
            self._trial = None
            if taken_up is not None:
                # Only now: the request has another follower, so that this is no hang-up of its last one.
                self._call.cancel()
                self._channels.note_moved(self._used, target)
                self._call, self._used, self._taken_up = call, target, taken_up
                self._note_moved()
            if taken_up is not None or self._closed.is_set():
                return

    async def _try(self, call: _Call) -> pb.GenerateStreamResponse | None:
        """The first event of a call, if that is there soon."""
        first = None
        try:
            async with asyncio.timeout(TRIAL_S):
                first = await self._read(call)
        except (grpc.aio.AioRpcError, TimeoutError):
            pass  # this stream goes on
        finally:
            if first is None:
                call.cancel()
        return first

    async def _recover(self, error: HeadraceError, cause: grpc.aio.AioRpcError) -> None:
        """Goes on where that can help; otherwise the stream is over."""
        if self._closed.is_set():
            raise self._closed_error() from cause
        self._channels.note(error, self._used)
        if self._cursor.answered:
            # The connection broke between the last event and the end of the call: nothing is missing.
            self._over = True
            return
        pause_s = self._pause_s(error)
        if pause_s is None:
            raise self._given_up(error) from cause
        try:
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        except TimeoutError:
            if not self._closed.is_set():
                self._call = self._begin()

    def _closed_error(self) -> Cancelled:
        return Cancelled("the stream was closed", code="CANCELLED", request_id=self.request_id)

    def _begin(self) -> _Call:
        """Where it is known that the request was accepted, it is followed."""
        self._used = self._channels.current
        if self._request is None or self.request_id is not None:
            return self._attach(self._used, self._attach_request())
        stub = self._channels.inference(self._used)
        return stub.GenerateStream(self._request, timeout=self._left_s(), metadata=self._metadata)

    def _attach(self, target: int, request: pb.AttachRequest) -> _Call:
        stub = self._channels.inference(target)
        return stub.Attach(request, timeout=self._left_s(), metadata=self._metadata)
