"""The channels of a sync client: one for each target, opened when first used."""

from typing import TypeVar

import grpc
from google.protobuf.message import Message

from headrace.client.connection import channel_options
from headrace.client.status import error_from_rpc
from headrace.client.targets import TargetChannels
from headrace.client.trace import TraceContext
from headrace.v1.admin_service_pb2_grpc import AdminServiceStub
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Channels(TargetChannels[grpc.Channel]):
    """Channels of grpc, for threads."""

    def inference(self, target: int | None = None) -> InferenceServiceStub:
        """The stub of a target, made once for each channel; without one, of that in use."""
        return self._kept(InferenceServiceStub, target)

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

    def close(self) -> None:
        """Closes all; their calls end as cancelled."""
        for channel in self._take_all():
            channel.close()

    def _new(self, address: str) -> grpc.Channel:
        options = channel_options(len(self.targets.addresses))
        if self.credentials is None:
            return grpc.insecure_channel(address, options, self.compression)
        return grpc.secure_channel(address, self.credentials, options, self.compression)
