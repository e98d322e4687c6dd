"""The channels of an asyncio client: one for each target, opened when first used inside the loop."""

from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import Message

from headrace.client.connection import channel_options
from headrace.client.status import error_from_rpc
from headrace.client.targets import TargetChannels
from headrace.client.trace import TraceContext
from headrace.v1.admin_service_pb2_grpc import AdminServiceStub
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub

if TYPE_CHECKING:
    # The generator writes the asyncio stubs' types only; at run time one class serves both.
    from headrace.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from headrace.v1.inference_service_pb2_grpc import InferenceServiceAsyncStub

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class AioChannels(TargetChannels[grpc.aio.Channel]):
    """Channels of grpc.aio; each opens inside the loop."""

    def inference(self, target: int | None = None) -> "InferenceServiceAsyncStub":
        """The stub of a target, made once for each channel; without one, of that in use."""
        return self._kept(InferenceServiceStub, target)

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

    async def close(self) -> None:
        """Closes all; their calls end as cancelled."""
        for channel in self._take_all():
            await channel.close()

    def _new(self, address: str) -> grpc.aio.Channel:
        options = channel_options(len(self.targets.addresses))
        if self.credentials is None:
            return grpc.aio.insecure_channel(address, options, self.compression)
        return grpc.aio.secure_channel(address, self.credentials, options, self.compression)
