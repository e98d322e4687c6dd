"""A gateway that was away for longer than its lease: its requests were left by everybody, and yet somebody waits."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from common import keys
from common.streams import following
from common.streams.following import Record, read_record
from gateway.relay.follower import Follower
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import drain, request, text_of
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler, words
from tests.integration.gateway.statuses import retry_s
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import running_proxy
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def followers(led: Led) -> list[bytes]:
    """Names in the request's set; none either while it counts as abandoned."""
    fields = await led.node.call(lambda client: client.hkeys(keys.record(led.id)))
    return [] if b"abandon_ms" in fields else [name for name in fields if name.startswith(b"f:")]


async def is_given_up(led: Led) -> bool:
    """Whether it is cancelled in a while if nobody comes back."""
    fields = await led.node.call(lambda client: client.hkeys(keys.record(led.id)))
    return b"abandon_ms" in fields and not any(name.startswith(b"f:") for name in fields)


async def until(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(scaled(60)):
        while not await look():  # noqa: ASYNC110 - what is looked for is in Redis
            await asyncio.sleep(0.05)


async def until_missed(led: Led) -> None:
    """The lease of the request's gateway has run out."""
    alive = keys.gateway_alive(led.log)

    async def is_gone() -> bool:
        return not await led.node.call(lambda client: client.exists(alive))

    await until(is_gone)


async def test_followers_are_back_when_their_gateway_is(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """Its leader let them leave; they follow again, also where that leader does it a moment too late."""
    with running_proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with running_gateway(url, tmp_path) as gateway:
            call = gateway.inference.GenerateStream(request())
            led = await scheduler.next()
            await anext(aiter(call))

            async def let_leave() -> None:
                await following.leave(
                    led.node, led.id, f"{led.log}:", grace_ms=60_000, bound_s=None
                )
                assert not await followers(led)

            await asyncio.to_thread(proxy.blackhole)
            await until_missed(led)
            await let_leave()
            await asyncio.to_thread(proxy.pass_through)
            await until(lambda: followers(led))
            await let_leave()
            await until(lambda: followers(led))
            await led.tokens(2)
            await led.finish()
            assert text_of(await drain(call)) == "".join(words(0, 2))


async def test_streams_are_told_while_their_gateway_is_away(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """At once, and not only when a sign of life is due; who would attach here is refused; and all goes on behind it."""
    with running_proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with running_gateway(url, tmp_path, keepalive_s=600.0) as gateway:
            call = gateway.inference.GenerateStream(request())
            led = await scheduler.next()
            events = aiter(call)
            await anext(events)
            await asyncio.to_thread(proxy.blackhole)
            async with asyncio.timeout(scaled(60)):
                for _ in range(2):
                    event = await anext(events)
                    assert event.keepalive.queue_unreachable
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(gateway.inference.Attach(attach_to(led))))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert retry_s(caught.value) > 0
            await asyncio.to_thread(proxy.pass_through)
            await led.tokens(2)
            async with asyncio.timeout(scaled(60)):
                while (event := await anext(events)).HasField("keepalive"):
                    assert event.keepalive.queue_unreachable
            assert event.delta.text == "".join(words(0, 2))
            await led.finish()
            await drain(call)


def attach_to(led: Led) -> pb.AttachRequest:
    return pb.AttachRequest(request_id=str(led.id))


async def test_who_left_meanwhile_stays_away(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """A client that hung up while its gateway was away does not come back with it: its request is cancelled,
    after the grace in which it may come back elsewhere."""
    with running_proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with running_gateway(url, tmp_path) as gateway:
            call = gateway.inference.GenerateStream(request())
            led = await scheduler.next()
            await anext(aiter(call))
            await asyncio.to_thread(proxy.blackhole)
            await until_missed(led)
            call.cancel()
            await asyncio.to_thread(proxy.pass_through)
            await until(lambda: is_given_up(led))
            assert await led.cancel_flag() == "abandoned"
            assert not await followers(led)


async def test_a_failed_look_at_another_gateway_cancels_nothing(
    gateway: RunningGateway,
    other_gateway: RunningGateway,
    scheduler: ScriptedScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who attached, was given nothing in time and left may follow elsewhere still, though nobody counts him there."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await anext(aiter(call))
    await following.leave(led.node, led.id, f"{led.log}:", grace_ms=60_000, bound_s=None)
    assert await is_given_up(led)

    async def never(_: Follower, __: Record) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Follower, "start_from", never)
    trial = other_gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id)))
    reading = asyncio.ensure_future(trial.read())
    await until(lambda: followers(led))
    trial.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await until(lambda: is_given_up(led))
    record = await read_record(led.node, led.id, bound_s=None)
    assert record is not None
    assert not record.cancel
