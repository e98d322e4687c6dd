"""A proxy between a scheduler and Redis loses answers and whole connections: writes are repeated, never doubled."""

import asyncio

import pytest

from common.streams import leases
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import PARTITION, eventually_empty, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import running_proxy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_lost_answers_change_nothing(redis_server: RedisServer, node: Node):
    """Scripts are applied and their answers swallowed, at every stage: each stream has exactly its tokens, usage too."""
    worker = FakeWorker(step_s=0.01)
    with running_proxy(redis_server.port) as proxy:
        async with (
            scheduling(f"redis://127.0.0.1:{proxy.port}/0") as scheduler,
            serving(node) as gateway,
            working(worker, scheduler.address),
        ):
            await worker.until(lambda w: w.is_welcome)
            ids = []
            for number in range(6):
                # Hits own, take, append, checkpoint, finish or heartbeat, whichever comes next.
                proxy.drop_replies(b"EVALSHA", count=1)
                ids.append(await gateway.admit((number, 8), max_tokens=80))
                await asyncio.sleep(0.25)
            for number, request_id in enumerate(ids):
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((number, 8), 80)
                terminal = await gateway.terminal(request_id)
                assert terminal.usage.completion_tokens == 80
                assert terminal.usage.prompt_tokens == 2
            await eventually_empty(node)
            assert proxy.num_dropped >= 3


async def test_a_leader_that_cannot_renew_stops_writing(redis_server: RedisServer, node: Node):
    """Cut off from Redis, a leader falls silent; the standby takes over, and the former one joins it as a standby."""
    first, second = FakeWorker("w1", step_s=0.02), FakeWorker("w2", "i2", step_s=0.02)
    with running_proxy(redis_server.port) as proxy:
        async with (
            scheduling(f"redis://127.0.0.1:{proxy.port}/0", "s1") as former,
            serving(node) as gateway,
            working(first, former.address),
        ):
            await first.until(lambda w: w.is_welcome)
            async with (
                scheduling(redis_server.url, "s2") as standby,
                working(second, standby.address),
            ):
                request_id = await gateway.admit((5, 1), max_tokens=300)
                await gateway.until(request_id, lambda p: p.next_seq >= 5)
                proxy.blackhole()
                await second.until(lambda w: w.assigns)
                proxy.pass_through()
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((5, 1), 300)
                terminal = await gateway.terminal(request_id)
                assert terminal.usage.completion_tokens == 300
                holder = await leases.read_leader(node, PARTITION)
                assert holder is not None
                assert holder.address == standby.address
                assert not former.task.done()
