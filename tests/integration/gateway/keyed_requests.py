"""Requests with an idempotency key, and what a test wants to know of them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import grpc.aio
import pytest

from common import keys
from common.domain import FinishReason, Priority
from common.streams import idempotency
from common.streams.idempotency import Claim, KeyName
from common.streams.node import RedisClient
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.requests import request
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler
from tests.support.time_scale import scaled

NAME = KeyName("default", "k")


def keyed(text: str = "hello world", **fields: object) -> pb.GenerateRequest:
    """A request with the key `k`."""
    fields.setdefault("idempotency_key", "k")
    return request(text, **fields)


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def answer(led: Led, count: int = 3, reason: FinishReason = FinishReason.STOP) -> None:
    """Generate so many tokens and end."""
    await led.prompt()
    await led.tokens(count)
    await led.finish(reason)


async def followed(led: Led, num_followers: int) -> None:
    """Wait until so many follow the request."""
    async with asyncio.timeout(scaled(60)):
        while True:
            fields = await led.node.call(lambda client: client.hkeys(keys.record(led.id)))
            if sum(field.startswith(b"f:") for field in fields) == num_followers:
                return
            await asyncio.sleep(0.01)


async def claimed(scheduler: ScriptedScheduler, wanted: Callable[[Claim | None], bool]) -> None:
    """Wait until what `k` stands for is as wanted."""
    async with asyncio.timeout(scaled(60)):
        while True:
            if wanted(await idempotency.look(scheduler.node, NAME, bound_s=10)):
                return
            await asyncio.sleep(0.01)


def is_confirmed(claim: Claim | None) -> bool:
    """Whether the key is known to stand for an admitted request."""
    return claim is not None and claim.is_admitted


async def nothing_waits(scheduler: ScriptedScheduler) -> None:
    """Whatever was admitted has been served: a second execution would stay in the inbox for ever."""
    async with asyncio.timeout(scaled(60)):
        while await _num_entries(scheduler):  # noqa: ASYNC110 - nothing tells of an ack
            await asyncio.sleep(0.01)


async def _num_entries(scheduler: ScriptedScheduler) -> int:
    total = 0
    for priority in Priority:
        name = keys.inbox(scheduler.partition, priority)
        total += await scheduler.node.call(partial(_length, name=name))
    return total


async def _length(client: RedisClient, name: str) -> int:
    length: int = await client.xlen(name)
    return length
