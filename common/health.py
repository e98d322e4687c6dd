"""The standard gRPC health service (``grpc.health.v1``), fed from ``Readiness``.

Names: "" is the process, ``headrace.v1.InferenceService`` is ready to serve, ``model/<name>`` one model.
"""

from collections.abc import Iterable

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from common.readiness import Readiness

PROCESS = ""

_Status = health_pb2.HealthCheckResponse.ServingStatus


def model_service_name(model: str) -> str:
    """The name under which a model's health is asked for."""
    return f"model/{model}"


class HealthService:
    """Statuses by name; ``Watch`` streams their changes."""

    def __init__(self, readiness: Readiness, services: Iterable[str] = ()) -> None:
        """``services`` follow readiness beside the process itself."""
        self._readiness = readiness
        self._following = (PROCESS, *services)
        self._servicer = health_aio.HealthServicer()

    async def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``, which has not started: the servicer would call a new process healthy."""
        await self._follow_once()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def set_serving(self, name: str, serving: bool) -> None:
        """State one name's status."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        await self._servicer.set(name, status)

    async def follow(self) -> None:
        """Keep the following names in step with readiness, until cancelled."""
        while True:
            change = self._readiness.next_change()
            await self._follow_once()
            await change.wait()

    async def stop(self) -> None:
        """Everything is NOT_SERVING from now on: clients look elsewhere while the rest is finished."""
        await self._servicer.enter_graceful_shutdown()

    async def _follow_once(self) -> None:
        for name in self._following:
            await self.set_serving(name, self._readiness.ready)
