"""The standard health service over a real gRPC connection."""

import asyncio

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.grpc_options import internal_channel_options, internal_server_options
from common.health import PROCESS, HealthService, model_service_name
from common.readiness import Readiness
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
INFERENCE = "headrace.v1.InferenceService"


@pytest.fixture
async def served():
    """A server with health, its readiness, and a stub."""
    server = grpc.aio.server(options=internal_server_options())
    readiness = Readiness()
    health = HealthService(readiness, [INFERENCE])
    await health.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with (
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=internal_channel_options()
        ) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        following = tasks.create_task(health.follow())
        yield health, readiness, health_pb2_grpc.HealthStub(channel)
        following.cancel()
    await server.stop(grace=None)


async def test_watch_streams_every_change(served):
    """A load balancer learns at once that a gateway became ready, or no longer is."""
    _, readiness, stub = served
    async with asyncio.timeout(scaled(60)):
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=INFERENCE))
        assert (await watch.read()).status == NOT_SERVING
        readiness.set("redis", holds=True)
        assert (await watch.read()).status == SERVING
        readiness.set("redis", holds=False)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()


async def test_a_new_process_is_not_healthy_yet(served):
    """Nobody is sent to a gateway that has not reached Redis."""
    _, _, stub = served
    async with asyncio.timeout(scaled(60)):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=PROCESS))
    assert answer.status == NOT_SERVING


async def test_names_have_their_own_status(served):
    """A model can be down while the process is up; an unknown name is NOT_FOUND."""
    health, readiness, stub = served
    async with asyncio.timeout(scaled(60)):
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=PROCESS))
        readiness.set("redis", holds=True)
        while (await watch.read()).status != SERVING:
            pass
        watch.cancel()
        await health.set_serving(model_service_name("smol"), False)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="model/smol"))
        assert answer.status == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="model/other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_stopping_process_serves_nothing_by_any_name(served):
    """Clients go elsewhere before the last streams end."""
    health, readiness, stub = served
    async with asyncio.timeout(scaled(60)):
        await health.set_serving(model_service_name("smol"), True)
        await health.stop()
        readiness.set("redis", holds=True)
        for name in (PROCESS, INFERENCE, "model/smol"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == NOT_SERVING, name
