"""The gateway's gRPC servers: one for everybody, and one for operators where they have a port of their own."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_channelz.v1 import channelz
from grpc_reflection.v1alpha import reflection

from common.errors import HeadraceError
from common.grpc_options import public_server_options
from common.health import HealthService
from common.server import CannotServe
from common.tls import ServerTls
from gateway.asking import Handler, asked_message
from gateway.boundary import Boundary, Continuation, abort
from gateway.caller import Context
from gateway.settings import GatewaySettings

_CHANNELZ_SERVICE = "grpc.channelz.v1.Channelz"
_HEALTH = "grpc.health.v1.Health"

RequireOperator = Callable[[Sequence[tuple[str, str]]], None]


class Servers:
    """``public`` serves callers, ``operators`` the administration; without a port of its own both are one server."""

    def __init__(
        self,
        settings: GatewaySettings,
        boundary: Boundary,
        require_operator: RequireOperator,
        tls: ServerTls | None,
    ) -> None:
        """``require_operator`` raises for whoever may not look at the connections."""
        self._settings = settings
        self._tls = tls
        self.has_own = settings.admin_port is not None
        interceptors = (_Asked(), boundary, _OperatorsOnly(require_operator))
        self.public = self._server(interceptors)
        self.operators = self._server(interceptors) if self.has_own else self.public

    async def complete(self, health: HealthService, inference: str, admin: str) -> None:
        """What every server has beside its own services."""
        named = [inference, *(() if self.has_own else (admin,)), _HEALTH]
        await health.add_to(self.public)
        reflection.enable_server_reflection([*named, reflection.SERVICE_NAME], self.public)
        if self.has_own:
            await health.add_to(self.operators)
            channelz.add_channelz_servicer(self.operators)
            named = [admin, _CHANNELZ_SERVICE, _HEALTH, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(named, self.operators)

    def bind(self) -> dict[str, str]:
        """Take the ports; where they are, by name.

        Raises:
            CannotServe: one is taken.
        """
        settings = self._settings
        places = {"grpc": self._bind(self.public, settings.grpc_host, settings.grpc_port, "grpc")}
        if settings.admin_port is not None:
            places["admin"] = self._bind(
                self.operators, settings.admin_host, settings.admin_port, "admin"
            )
        return places

    async def start(self) -> None:
        """Serve."""
        for server in self._all:
            await server.start()

    async def stop(self, grace_s: float) -> None:
        """No new calls; what is open may go on for so long."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._all))

    @property
    def _all(self) -> list[grpc.aio.Server]:
        return [self.public, self.operators] if self.has_own else [self.public]

    def _server(self, interceptors: Sequence[grpc.aio.ServerInterceptor]) -> grpc.aio.Server:
        most = self._settings.max_message_bytes
        return grpc.aio.server(
            interceptors=interceptors,
            options=[
                *public_server_options(self._settings.client_ping_s),
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", most),
                # It keeps figures of every connection and call, which nobody could ask for without the port.
                ("grpc.enable_channelz", int(self.has_own)),
            ],
        )

    def _bind(self, server: grpc.aio.Server, host: str, port: int, name: str) -> str:
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        address = f"{host}:{port}"
        try:
            if self._tls is not None:
                port = server.add_secure_port(address, self._tls.grpc_credentials())
            else:
                port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise CannotServe(f"--{name}-port: cannot bind {address}") from error
        return f"{host}:{port}"


class _Asked(grpc.aio.ServerInterceptor):
    """Health and channelz wait for their message no longer than the boundary does for those of our own services."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """The handler of a call, bounded if it has one message and still waits for it."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler

        async def behaviour(_: Any, context: Context) -> Any:
            try:
                request = await asked_message(context)
            except HeadraceError as error:
                await abort(context, error)
            return await (handler.unary_unary or handler.unary_stream)(request, context)

        streaming = handler.response_streaming
        return handler._replace(
            request_streaming=True,
            unary_unary=None,
            unary_stream=None,
            stream_unary=None if streaming else behaviour,
            stream_stream=behaviour if streaming else None,
        )


class _OperatorsOnly(grpc.aio.ServerInterceptor):
    """Connections and their peers are shown to operators alone, as the boundary lets nobody else administrate."""

    def __init__(self, require_operator: RequireOperator) -> None:
        self._require_operator = require_operator

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """The handler of a call, or a refusal."""
        if handler_call_details.method.startswith(f"/{_CHANNELZ_SERVICE}/"):
            pairs = [
                (key, value)
                for key, value in handler_call_details.invocation_metadata
                if isinstance(value, str)
            ]
            try:
                self._require_operator(pairs)
            except HeadraceError as error:
                return _refusing(error)
        return await continuation(handler_call_details)


def _refusing(error: HeadraceError) -> Handler:
    async def refuse(_: Any, context: Context) -> Any:
        await abort(context, error)

    return grpc.unary_unary_rpc_method_handler(refuse)
