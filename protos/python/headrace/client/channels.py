"""The channels of a sync client: one for each target, opened when first used."""

import threading
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from headrace.client.connection import CHANNEL_OPTIONS, Metadata, Targets, call_metadata
from headrace.client.errors import HeadraceError
from headrace.client.status import error_from_rpc
from headrace.client.trace import TraceContext
from headrace.v1.admin_service_pb2_grpc import AdminServiceStub
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Channels:
    """Opens channels, knows which one is in use, and moves on when it fails. Safe to share between threads."""

    def __init__(
        self, targets: Targets, credentials: grpc.ChannelCredentials | None, metadata: Metadata
    ) -> None:
        """Opens nothing yet; ``metadata`` goes with every call."""
        self._targets = targets
        self._metadata = metadata
        self._credentials = credentials
        self._lock = threading.Lock()
        self._open: dict[int, grpc.Channel] = {}
        self._stubs: dict[grpc.Channel, InferenceServiceStub] = {}
        self.current = 0
        self._closed = False

    def inference(self) -> InferenceServiceStub:
        """The stub of the target in use, made once for each channel."""
        channel = self._channel()
        stub = self._stubs.get(channel)
        if stub is None:
            stub = self._stubs[channel] = InferenceServiceStub(channel)
        return stub

    def admin(self) -> AdminServiceStub:
        """The stub of the target in use."""
        return AdminServiceStub(self._channel())

    def unary(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        *,
        timeout_s: float | None,
        trace: TraceContext | None = None,
    ) -> _Response:
        """Makes a call whose failure is a ``HeadraceError``."""
        used = self.current
        try:
            return method(request, timeout=timeout_s, metadata=self.metadata(trace))
        except grpc.RpcError as error:
            failure = error_from_rpc(error)
            self.note(failure, used)
            raise failure from error

    def metadata(self, trace: TraceContext | None) -> tuple[tuple[str, str | bytes], ...]:
        """What a call sends: the client's metadata and a trace context."""
        return call_metadata(self._metadata, TraceContext.for_call(trace))

    def note(self, failure: HeadraceError, used: int) -> None:
        """After a failed call to target ``used``: the next one goes elsewhere if that one is away."""
        if failure.code == "UNAVAILABLE":
            with self._lock:
                # Many calls may fail at once; only the first of them moves on.
                if self.current == used:
                    self.current = self._targets.after(used)

    def close(self) -> None:
        """Closes all; their calls end as cancelled."""
        with self._lock:
            self._closed = True
            channels = list(self._open.values())
            self._open.clear()
        for channel in channels:
            channel.close()

    def _channel(self) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self.current not in self._open:
                self._open[self.current] = self._new(self._targets.addresses[self.current])
            return self._open[self.current]

    def _new(self, address: str) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        return grpc.secure_channel(address, self._credentials, options=CHANNEL_OPTIONS)
