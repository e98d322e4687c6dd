"""A new, small request goes to its worker before the record says whose it is; nothing counts until that says it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from common import keys
from common.domain import Priority, RequestId
from common.request_status import RequestStatus
from common.streams.node import Node
from common.streams.scripts import script_digest
from tests.integration.scheduler.fake_gateway import FakeGateway, eventually_empty, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import TcpProxy, running_proxy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_START = script_digest("start").encode()


@contextlib.asynccontextmanager
async def _slow_redis(
    redis_server: RedisServer, node: Node, worker: FakeWorker
) -> AsyncIterator[tuple[TcpProxy, FakeGateway, asyncio.Task[None]]]:
    """A scheduler whose writes take more than half a second, and which knows the node's time."""
    with running_proxy(redis_server.port) as proxy:
        async with (
            scheduling(f"redis://127.0.0.1:{proxy.port}/0") as scheduler,
            serving(node) as gateway,
            working(worker, scheduler.address) as task,
        ):
            await worker.until(lambda w: w.is_welcome)
            first = await gateway.admit((9, 9), max_tokens=2)
            assert (await gateway.terminal(first)).status is RequestStatus.FINISHED
            await eventually_empty(node)
            proxy.delay(0.3)
            yield proxy, gateway, task


async def _status(node: Node, request_id: RequestId) -> bytes:
    return await node.call(lambda client: client.hget(keys.record(request_id), "status"))


def _has(request_id: RequestId):
    return lambda w: any(one.body.request_id == str(request_id) for one in w.assigns)


async def test_a_worker_computes_while_the_record_is_written(
    redis_server: RedisServer, node: Node
):
    """It has the request while the record still says queued; its tokens are all there, once, and none was logged before."""
    worker = FakeWorker()
    async with _slow_redis(redis_server, node, worker) as (proxy, gateway, _):
        request_id = await gateway.admit((5, 6), max_tokens=4)
        await worker.until(_has(request_id))
        assert await _status(node, request_id) == b"queued"
        await worker.until(lambda w: not w.running)
        if (
            await _status(node, request_id) == b"queued"
        ):  # as it is unless this process was held up
            assert str(request_id) not in gateway.progress
        proxy.delay(0)
        terminal = await gateway.terminal(request_id)
        assert terminal.progress.choices[0].token_ids == expected((5, 6), 4)
        assert terminal.usage.completion_tokens == 4
        assert terminal.timings.attempts == 1
        assert terminal.progress.epoch == 1
        assert 0 <= terminal.timings.queue_s <= terminal.timings.time_to_first_token_s
        await eventually_empty(node)


async def test_what_does_not_start_is_stopped_and_void(redis_server: RedisServer, node: Node):
    """Whoever cancelled it in the same moment gets no token, though a worker had begun; that one is told to stop."""
    worker = FakeWorker(steps_left=100)
    async with _slow_redis(redis_server, node, worker) as (proxy, gateway, _):
        request_id = await gateway.admit((5, 6), max_tokens=100_000, cancelled="cancelled")
        await worker.until(_has(request_id))
        proxy.delay(0)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.CANCELLED
        assert terminal.usage.completion_tokens == 0
        await worker.until(lambda w: not w.running)
        await eventually_empty(node)


async def test_a_lost_answer_voids_what_was_early(redis_server: RedisServer, node: Node):
    """The repeated start finds a request with a past: it begins anew under another epoch, and gets each token once."""
    worker = FakeWorker(step_s=0.02)
    async with _slow_redis(redis_server, node, worker) as (proxy, gateway, _):
        proxy.delay(0)
        proxy.drop_replies(_START, count=1)
        request_id = await gateway.admit((5, 6), max_tokens=30)
        terminal = await gateway.terminal(request_id)
        assert terminal.progress.choices[0].token_ids == expected((5, 6), 30)
        assert terminal.progress.epoch == 2
        assert gateway.num_duplicates == 0
        assert [one.epoch for one in worker.assigns if one.body.request_id == str(request_id)] == [
            1,
            2,
        ]
        await eventually_empty(node)


@pytest.mark.parametrize("goes", ["dies", "gives back"])
async def test_a_worker_that_goes_before_it_counts(
    redis_server: RedisServer, node: Node, goes: str
):
    """What it leaves behind is another attempt, of the same worker or another; a death counts as one."""
    worker, other = FakeWorker(step_s=0.05), FakeWorker("w2", "i2")
    async with _slow_redis(redis_server, node, worker) as (proxy, gateway, task):
        request_id = await gateway.admit((5, 6), max_tokens=100)
        await worker.until(_has(request_id))
        if goes == "dies":
            task.cancel()
            await asyncio.wait([task])
        else:
            worker.give_back_all("drained")
        assert await _status(node, request_id) == b"queued"
        proxy.delay(0)
        async with contextlib.AsyncExitStack() as exits:
            if goes == "dies":
                address = await _leader(node)
                await exits.enter_async_context(working(other, address))
            else:
                worker.step_s = 0.002
            terminal = await gateway.terminal(request_id)
            assert terminal.progress.choices[0].token_ids == expected((5, 6), 100)
            assert terminal.timings.attempts == 2
            losses = await node.call(
                lambda client: client.hget(keys.record(request_id), "worker_losses")
            )
            assert int(losses or 0) == (1 if goes == "dies" else 0)
            await eventually_empty(node)


async def _leader(node: Node) -> str:
    (key,) = await node.call(lambda client: client.keys("hr:*:lead"))
    return (await node.call(lambda client: client.get(key))).decode().partition("|")[2]


async def test_a_large_body_stays_in_the_record(redis_server: RedisServer, node: Node):
    """Its entry does not hold it, and its worker gets it once the record is written."""
    worker = FakeWorker()
    prompt = tuple(range(300, 2300))
    async with _slow_redis(redis_server, node, worker) as (proxy, gateway, _):
        request_id = await gateway.admit(prompt, max_tokens=4)
        inbox = keys.inbox(request_id.partition, Priority.NORMAL)
        ((_, fields),) = await node.call(lambda client: client.xrange(inbox))
        assert b"header" in fields
        assert b"body" not in fields
        await worker.until(_has(request_id))
        assert await _status(node, request_id) == b"running"
        proxy.delay(0)
        terminal = await gateway.terminal(request_id)
        assert terminal.progress.choices[0].token_ids == expected(prompt, 4)
        await eventually_empty(node)
