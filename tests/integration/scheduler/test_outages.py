"""Redis stops, restarts and loses connections: nothing is lost, nobody takes over from anybody."""

import asyncio

import pytest

from common import keys
from common.streams import cards, leases
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import PARTITION, eventually_empty, serving
from tests.integration.scheduler.fake_worker import MODEL, FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import running_proxy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_redis_killed_and_restarted(redis_server: RedisServer, node: Node):
    """kill -9 of Redis (AOF always) mid-generation: every stream ends with exactly its tokens."""
    worker = FakeWorker(step_s=0.01)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        prompts = [(n, 1) for n in range(12)]
        ids = [await gateway.admit(prompt, max_tokens=120) for prompt in prompts]
        await gateway.until(ids[0], lambda p: p.next_seq >= 20)
        await asyncio.to_thread(redis_server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(redis_server.restart)
        for prompt, request_id in zip(prompts, ids, strict=True):
            progress = await gateway.ended(request_id)
            assert progress.choices[0].token_ids == expected(prompt, 120)
        await eventually_empty(node)
        assert scheduler.metric("headrace_takeovers_total") == 0


async def test_a_stalled_redis_changes_no_leader(redis_server: RedisServer, node: Node):
    """Redis hangs for longer than a lease: the leader goes on leading, the standby keeps standing by."""
    worker = FakeWorker(step_s=0.02)
    async with (
        scheduling(redis_server.url, "s1") as leader,
        serving(node) as gateway,
        working(worker, leader.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        async with scheduling(redis_server.url, "s2") as standby:
            request_id = await gateway.admit((7, 7), max_tokens=200)
            await gateway.until(request_id, lambda p: p.next_seq >= 5)
            redis_server.pause()
            await asyncio.sleep(keys.LEADER_LEASE_MS / 1000 + 1.5)
            redis_server.resume()
            progress = await gateway.ended(request_id)
            assert progress.choices[0].token_ids == expected((7, 7), 200)
            holder = await leases.read_leader(node, PARTITION)
            assert holder is not None
            assert holder.address == leader.address
            assert standby.metric("headrace_takeovers_total") == 0


async def test_a_dead_leader_is_replaced_while_redis_is_hurt(
    redis_server: RedisServer, node: Node
):
    """Redis hangs for a second again and again, never well for a whole lease: the standby leads all the same."""
    worker = FakeWorker(step_s=0.02)
    async with (
        scheduling(redis_server.url, "s1") as leader,
        serving(node) as gateway,
    ):
        async with working(worker, leader.address):
            request_id = await gateway.admit((7, 7), max_tokens=60)
            await gateway.until(request_id, lambda p: p.next_seq >= 5)
        async with (
            scheduling(redis_server.url, "s2") as standby,
            working(FakeWorker(step_s=0.02), standby.address),
            asyncio.TaskGroup() as tasks,
        ):
            await leader.die()
            hurting = tasks.create_task(_hurt(redis_server, well_s=1.8))
            progress = await gateway.ended(request_id)
            hurting.cancel()
            assert progress.choices[0].token_ids == expected((7, 7), 60)
            assert standby.metric("headrace_takeovers_total") == 1


async def _hurt(redis_server: RedisServer, well_s: float) -> None:
    """Well for a while, then away for longer than any look waits, for ever."""
    assert well_s < keys.LEADER_LEASE_MS / 1000
    while True:
        await asyncio.sleep(well_s)
        redis_server.pause()
        try:
            await asyncio.sleep(1.0)
        finally:
            redis_server.resume()


async def test_lost_connections_lose_nothing(redis_server: RedisServer, node: Node):
    """All connections are cut again and again: appends are repeated, readers skip what they know."""
    worker = FakeWorker(step_s=0.005)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        ids = [await gateway.admit((n, 4), max_tokens=150) for n in range(8)]
        async with asyncio.TaskGroup() as tasks:

            async def cut() -> None:
                """Whatever a connection needs to come about, it lives until something more was logged over it."""
                while True:
                    await asyncio.sleep(0.15)
                    num_logged = sum(one.next_seq for one in gateway.progress.values())
                    await node.call(lambda c: c.client_kill_filter(_type="normal", skipme=True))
                    async with gateway.changed:
                        await gateway.changed.wait_for(
                            lambda num=num_logged: (
                                sum(one.next_seq for one in gateway.progress.values()) > num
                            )
                        )

            cutting = tasks.create_task(cut())
            for number, request_id in enumerate(ids):
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((number, 4), 150)
            cutting.cancel()
        await eventually_empty(node)


async def test_a_scheduler_starts_before_redis(redis_server: RedisServer, node: Node):
    """Redis comes later than its scheduler: the scheduler serves as soon as Redis does."""
    await asyncio.to_thread(redis_server.stop)
    worker = FakeWorker()
    async with scheduling(redis_server.url) as scheduler, working(worker, scheduler.address):
        await asyncio.to_thread(redis_server.restart)
        async with serving(node) as gateway:
            request_id = await gateway.admit((5, 5), max_tokens=3)
            progress = await gateway.ended(request_id)
            assert progress.choices[0].token_ids == expected((5, 5), 3)


async def test_service_returns_after_a_flush(redis_server: RedisServer, node: Node):
    """FLUSHALL mid-generation: what ran is given up, cards come back from the workers, new requests run."""
    worker = FakeWorker(step_s=0.02)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        request_id = await gateway.admit(max_tokens=500)
        await gateway.until(request_id, lambda p: p.next_seq >= 3)
        await node.call(lambda c: c.flushall())
        async with asyncio.timeout(60):
            while MODEL not in await cards.read_index(node):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        fresh = await gateway.admit((3, 3), max_tokens=3)
        progress = await gateway.ended(fresh)
        assert progress.choices[0].token_ids == expected((3, 3), 3)
        await worker.until(lambda w: not w.running)
        assert not scheduler.task.done()


async def test_a_scheduler_stops_while_redis_is_away(redis_server: RedisServer, node: Node):
    """What cannot be written is left to the next leader, as after a crash; the stop does not wait for Redis."""
    worker = FakeWorker(step_s=0.01)
    with running_proxy(redis_server.port) as proxy:
        async with (
            scheduling(f"redis://127.0.0.1:{proxy.port}/0") as scheduler,
            serving(node) as gateway,
            working(worker, scheduler.address),
        ):
            request_id = await gateway.admit((3, 1), max_tokens=400)
            await gateway.until(request_id, lambda p: p.next_seq >= 20)
            await asyncio.to_thread(proxy.blackhole)
            sequence = worker.running[str(request_id)]
            unseen = sequence.num_generated + 20
            await worker.until(lambda w: sequence.num_generated >= unseen)
            await scheduler.stop()
            async with (
                scheduling(redis_server.url, "s2") as next_one,
                working(FakeWorker(step_s=0.01), next_one.address),
            ):
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((3, 1), 400)
