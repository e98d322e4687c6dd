"""Redis goes away and comes back: clear answers meanwhile, nothing accepted is lost, service resumes by itself."""

import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import drain, request, text_of
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words
from tests.integration.gateway.statuses import retry_s
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_redis_stops_and_starts(
    gateway: RunningGateway, scheduler: ScriptedScheduler, redis_server: RedisServer
) -> None:
    """UNAVAILABLE with RetryInfo in between; the open stream goes on; new requests work after."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    await asyncio.to_thread(redis_server.kill)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.Generate(request())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_s(caught.value) > 0
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await asyncio.to_thread(redis_server.restart)
    await led.tokens(1)
    await led.finish()
    assert text_of(await drain(call)) == "".join(words(0, 3))
    async with asyncio.timeout(scaled(60)):
        second = gateway.inference.GenerateStream(request())
        led = await scheduler.next()
        await led.finish()
        await drain(second)


async def test_a_stalled_redis_admits_nobody_behind_our_back(
    gateway: RunningGateway, scheduler: ScriptedScheduler, redis_server: RedisServer
) -> None:
    """An admission of unknown outcome is answered UNAVAILABLE and cancelled once Redis answers again."""
    await gateway.inference.ListModels(pb.ListModelsRequest())
    redis_server.pause()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.Generate(request())
    redis_server.resume()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    async with asyncio.timeout(scaled(60)):
        call = gateway.inference.GenerateStream(request(client_request_id="control"))
        control = (await anext(aiter(call))).accepted.request_id
        while str((led := await scheduler.own_next()).id) != control:
            assert await led.cancel_flag() == "admission unknown"
    call.cancel()


async def test_flushed_redis_gives_a_definite_answer(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A request whose record is gone for good ends UNAVAILABLE, and its gateway goes on serving."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.node.call(lambda client: client.flushall())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(call)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_health_follows_redis_and_workers(
    gateway: RunningGateway, scheduler: ScriptedScheduler, redis_server: RedisServer
) -> None:
    """The service serves while Redis answers; a model while it has a worker."""
    health = health_pb2_grpc.HealthStub(gateway.channel)
    serving = health_pb2.HealthCheckResponse.SERVING

    async def until(name: str, status: int) -> None:
        async for change in health.Watch(health_pb2.HealthCheckRequest(service=name)):
            if change.status == status:
                return

    async with asyncio.timeout(scaled(60)):
        await until("", serving)
        await until("headrace.v1.InferenceService", serving)
        watching = asyncio.create_task(until("model/tiny", serving))
        while not watching.done():
            await scheduler.snapshot(num_workers=1)
            await asyncio.sleep(0.2)
        await asyncio.to_thread(redis_server.stop)
        await until("headrace.v1.InferenceService", health_pb2.HealthCheckResponse.NOT_SERVING)
