"""The channels of an asyncio client: one for each target, opened when first used inside the loop."""

from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import Message

from headrace.client.connection import CHANNEL_OPTIONS, Metadata, Targets, call_metadata
from headrace.client.errors import HeadraceError
from headrace.client.status import error_from_rpc
from headrace.client.trace import TraceContext
from headrace.v1.admin_service_pb2_grpc import AdminServiceStub
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub

if TYPE_CHECKING:
    # The generator writes the asyncio stubs' types only; at run time one class serves both.
    from headrace.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from headrace.v1.inference_service_pb2_grpc import InferenceServiceAsyncStub

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class AioChannels:
    """Opens channels, knows which one is in use, and moves on when it fails."""

    def __init__(
        self, targets: Targets, credentials: grpc.ChannelCredentials | None, metadata: Metadata
    ) -> None:
        """Opens nothing yet, so that it may be made outside a loop; ``metadata`` goes with every call."""
        self._targets = targets
        self._metadata = metadata
        self._credentials = credentials
        self._open: dict[int, grpc.aio.Channel] = {}
        self._stubs: dict[grpc.aio.Channel, InferenceServiceAsyncStub] = {}
        self.current = 0
        self._closed = False

    def inference(self) -> "InferenceServiceAsyncStub":
        """The stub of the target in use, made once for each channel."""
        channel = self._channel()
        stub = self._stubs.get(channel)
        if stub is None:
            stub = self._stubs[channel] = InferenceServiceStub(channel)
        return stub

    def admin(self) -> "AdminServiceAsyncStub":
        """The stub of the target in use."""
        return AdminServiceStub(self._channel())

    async def unary(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        *,
        timeout_s: float | None,
        trace: TraceContext | None = None,
    ) -> _Response:
        """Makes a call whose failure is a ``HeadraceError``; cancelling the task cancels the call."""
        used = self.current
        try:
            return await method(request, timeout=timeout_s, metadata=self.metadata(trace))
        except grpc.aio.AioRpcError as error:
            failure = error_from_rpc(error)
            self.note(failure, used)
            raise failure from error

    def metadata(self, trace: TraceContext | None) -> tuple[tuple[str, str | bytes], ...]:
        """What a call sends: the client's metadata and a trace context."""
        return call_metadata(self._metadata, TraceContext.for_call(trace))

    def note(self, failure: HeadraceError, used: int) -> None:
        """After a failed call to target ``used``: the next one goes elsewhere if that one is away."""
        # Many calls may fail at once; only the first of them moves on.
        if failure.code == "UNAVAILABLE" and self.current == used:
            self.current = self._targets.after(used)

    async def close(self) -> None:
        """Closes all; their calls end as cancelled."""
        self._closed = True
        channels = list(self._open.values())
        self._open.clear()
        for channel in channels:
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self.current not in self._open:
            self._open[self.current] = self._new(self._targets.addresses[self.current])
        return self._open[self.current]

    def _new(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials, options=CHANNEL_OPTIONS)
