"""Quotas are settled by whoever finds a request's end, by what it used, once."""

import asyncio

import pytest

from common import keys
from common.domain import FinishReason, OrderingHeader, Priority, RequestId, Usage
from common.records import FinishRecord, Progress, Timings
from common.request_status import RequestStatus
from common.streams import following, inbox, ownership, tenants
from common.streams.node import Node
from common.streams.quota import QuotaUse, reserve, use_of
from common.tenancy import TenantLimits
from common.wire.records import TerminalRecord, encode_terminal
from common.wire.request import encode_header
from scheduler.weight_watch import WeightWatch
from tests.integration.scheduler.fake_gateway import (
    PARTITION,
    FakeGateway,
    eventually_empty,
    know_the_model,
    own_by,
    serving,
)
from tests.integration.scheduler.fake_worker import FakeWorker, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

RESERVED = encode_header(
    OrderingHeader("t", Priority.NORMAL, 3, 5, model_revision="r1", is_reserved=True)
)


async def admit(gateway: FakeGateway, node: Node, max_tokens: int = 5) -> RequestId:
    """A request that counts for the most that it can use."""
    request_id = await gateway.admit(header=RESERVED, max_tokens=max_tokens)
    limits = TenantLimits(tokens_per_minute=100_000)
    reached = await reserve(node, "t", request_id, 1000, limits, budget_s=60, bound_s=5)
    assert reached is None
    return request_id


async def test_an_end_settles(redis_server: RedisServer, node: Node):
    """Finished or cancelled: what counts is what the terminal record says, before the entry goes."""
    worker = FakeWorker(step_s=0.01)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        first = await admit(gateway, node)
        await gateway.terminal(first)
        await eventually_empty(node)
        assert await use_of(node, "t", bound_s=5) == QuotaUse(1, 8, 0)
        second = await admit(gateway, node, max_tokens=5000)
        await gateway.until(second, lambda progress: progress.next_seq > 2)
        await following.cancel(node, second, "test", bound_s=5)
        end = await gateway.terminal(second)
        await eventually_empty(node)
        used = 8 + 3 + end.usage.completion_tokens
        assert await use_of(node, "t", bound_s=5) == QuotaUse(2, used, 0)


async def test_what_a_dead_scheduler_left_is_settled(redis_server: RedisServer, node: Node):
    """It had written the terminal record and no more: the next one settles by what that says, and acks."""
    await know_the_model(node)
    await inbox.create_groups(node, PARTITION)
    gateway = FakeGateway(node)
    request_id = await admit(gateway, node)
    owned = await own_by(node, "gone", request_id)
    await asyncio.wait_for(_finish(node, request_id, owned.epoch), scaled(60))
    assert (await use_of(node, "t", bound_s=5)).open_requests == 1
    async with scheduling(redis_server.url):
        await eventually_empty(node)
    assert await use_of(node, "t", bound_s=5) == QuotaUse(1, 5, 0)


async def _finish(node: Node, request_id: RequestId, epoch: int) -> None:
    progress = Progress()
    progress.add(FinishRecord(0, 0, FinishReason.CANCELLED))
    terminal = TerminalRecord(
        RequestStatus.CANCELLED, progress, Usage(3, 2, 0), Timings(), 7, "w1", None, "r1", True, 3
    )
    await ownership.finish(node, request_id, epoch, terminal.status, encode_terminal(terminal))


async def test_shares_follow_what_operators_set(redis_server: RedisServer, node: Node):
    """A tenant's weight is taken over, changed and, without limits, given up for what the settings say."""
    weights = {"blue": 3.0}
    watch = WeightWatch(node, weights)
    await watch.look()
    assert weights == {"blue": 3.0}
    await tenants.store_limits(node, "blue", TenantLimits(weight=0.5), bound_s=5)
    await tenants.store_limits(node, "green", TenantLimits(weight=2.0), bound_s=5)
    await watch.look()
    assert weights == {"blue": 0.5, "green": 2.0}
    await node.call(lambda client: client.delete(keys.tenants()))
    await watch.look()
    assert weights == {"blue": 3.0}
