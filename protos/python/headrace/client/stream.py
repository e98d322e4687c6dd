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
from headrace.client.moving import TRIAL_S
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
        num_targets = len(channels.targets.addresses)
        super().__init__(cursor, reattach, trace, timeout_s, request, num_targets)
        self._channels = channels
        self._metadata = channels.metadata(trace)
        self._closed = threading.Event()
        self._over = False
        self._used = 0
        self._trial: _Call | None = None
        self._taken_up: pb.GenerateStreamResponse | None = None
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
                event = self._take(self._receive())
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
                    self._leave_if_cut_off(event)
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
        for call in (self._call, self._trial):
            if call is not None:
                call.cancel()

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

    def _receive(self) -> pb.GenerateStreamResponse:
        """The next event as it comes."""
        event, self._taken_up = self._taken_up, None
        return event_of(next(self._call)) if event is None else event

    def _leave_if_cut_off(self, event: pb.GenerateStreamResponse) -> None:
        """Goes on through another gateway where this one says that it has lost the queue, and stays where none can."""
        for target in self._others(event, self._used):
            call = self._trial = self._attach(target, self._attach_there())
            taken_up = self._try(call)
            if taken_up is not None:
                # Only now: the request has another follower, so that this is no hang-up of its last one.
                self._call.cancel()
                self._channels.note_moved(self._used, target)
                self._call, self._used, self._taken_up = call, target, taken_up
                self._note_moved()
            self._trial = None
            if self._closed.is_set():
                self._call.cancel()
            if taken_up is not None or self._closed.is_set():
                return

    def _try(self, call: _Call) -> pb.GenerateStreamResponse | None:
        """The first event of a call, if that is there soon."""
        first = None
        # Whoever takes it has decided: the timer that it took too long, or the first event that it did not.
        decision = threading.Lock()

        def give_up() -> None:
            if decision.acquire(blocking=False):
                call.cancel()

        timer = threading.Timer(TRIAL_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            if not self._closed.is_set():
                first = event_of(next(call))
        except (grpc.RpcError, StopIteration):
            pass  # this stream goes on
        finally:
            timer.cancel()
            if not decision.acquire(blocking=False):
                first = None
            if first is None:
                call.cancel()
        return first

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
            if self._closed.is_set():  # closed meanwhile: whoever did it has not seen this call
                self._call.cancel()

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
