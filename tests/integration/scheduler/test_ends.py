"""Cancels, deadlines, refusals and damage: every end is logged, settled and exact, wherever the request was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from common import keys
from common.domain import FinishReason, Priority, RequestId
from common.request_status import RequestStatus
from common.streams import following, leases
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import eventually_empty, know_the_model, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_cancel_while_waiting(redis_server: RedisServer, node: Node):
    """Without a worker the end is logged at once, with no tokens and no usage; a second cancel finds it ended."""
    await know_the_model(node)
    async with scheduling(redis_server.url), serving(node) as gateway:
        request_id = await gateway.admit()
        await following.cancel(node, request_id, "cancelled", bound_s=5)
        progress = await gateway.ended(request_id)
        assert progress.last_finish is not None
        assert progress.last_finish.reason is FinishReason.CANCELLED
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.CANCELLED
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (0, 0)
        assert terminal.failure is not None
        assert terminal.failure.code == "CANCELLED"
        again = await following.cancel(node, request_id, "cancelled", bound_s=5)
        assert again is not None
        assert not again.is_cancelling
        await eventually_empty(node)


async def test_cancel_while_running(redis_server: RedisServer, node: Node):
    """The worker stops it, what was generated is in the record, and its slot is free for the next."""
    worker = FakeWorker(max_seqs=1, steps_left=3)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        request_id = await gateway.admit((1, 1), max_tokens=50)
        await gateway.until(request_id, lambda p: p.next_seq == 3)
        await following.cancel(node, request_id, "cancelled", bound_s=5)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.CANCELLED
        assert terminal.progress.choices[0].token_ids == expected((1, 1), 3)
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (2, 3)
        assert not worker.running
        worker.steps_left = None
        following_id = await gateway.admit(max_tokens=2)
        await gateway.ended(following_id)


async def test_cancel_that_the_worker_ignores(redis_server: RedisServer, node: Node):
    """A worker that does not answer a cancel is not waited for, and what it still says is void."""
    worker = FakeWorker(answers_cancel=False, steps_left=2)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        request_id = await gateway.admit(max_tokens=50)
        await gateway.until(request_id, lambda p: p.next_seq == 2)
        await following.cancel(node, request_id, "cancelled", bound_s=5)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.CANCELLED
        await worker.step()
        await asyncio.sleep(0.1)
        assert gateway.progress[str(request_id)].next_seq == 2


async def test_abandoned_requests_are_cancelled(redis_server: RedisServer, node: Node):
    """A gateway that is gone leaves its requests; after the grace nobody follows, and they are cancelled."""
    worker = FakeWorker(steps_left=1)
    async with (
        scheduling(redis_server.url, orphan_grace_s=0.5) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        running = await gateway.admit(max_tokens=50)
        await gateway.until(running, lambda p: p.next_seq == 1)
        gateway.renews = False
        terminal = await gateway.terminal(running)
        assert terminal.status is RequestStatus.CANCELLED
        assert terminal.failure is not None
        assert terminal.failure.metadata == {"cause": "abandoned"}


async def test_a_request_outlives_gateways_as_long_as_any_follows(
    redis_server: RedisServer, node: Node
):
    """The gateway of its log dies, another one follows: it goes on. That one dies, too: cancelled after its grace, KV free."""
    worker = FakeWorker(steps_left=1)
    async with (
        scheduling(redis_server.url, orphan_grace_s=0.5) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        request_id = await gateway.admit(max_tokens=50)
        await gateway.until(request_id, lambda p: p.next_seq == 1)
        async with lease_of(node, "g2"):
            await following.follow(node, request_id, "g2:1", bound_s=5)
            gateway.renews = False
            await _until_unfollowed_from(node, request_id, "g1")
            worker.steps_left = 1
            await gateway.until(request_id, lambda p: p.next_seq == 2)
            assert worker.running
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.CANCELLED
        assert terminal.failure is not None
        assert terminal.failure.metadata == {"cause": "abandoned"}
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (3, 2)
        assert not worker.running
        await eventually_empty(node)


async def test_a_follower_within_the_grace_keeps_the_request(
    redis_server: RedisServer, node: Node
):
    """Its only gateway died, and before the grace was over somebody attached elsewhere: it runs to its end."""
    worker = FakeWorker(steps_left=1)
    async with (
        scheduling(redis_server.url, orphan_grace_s=60.0) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
        lease_of(node, "g2"),
    ):
        request_id = await gateway.admit(max_tokens=50)
        await gateway.until(request_id, lambda p: p.next_seq == 1)
        gateway.renews = False
        await _until_unfollowed_from(node, request_id, "g1")
        await following.follow(node, request_id, "g2:1", bound_s=5)
        worker.steps_left = None
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.FINISHED


@contextlib.asynccontextmanager
async def lease_of(node: Node, gateway_id: str) -> AsyncIterator[None]:
    """A gateway that lives during the block and dies at its end."""

    async def renew() -> None:
        while True:
            await leases.renew_gateway(node, gateway_id, bound_s=60)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _until_unfollowed_from(node: Node, request_id: RequestId, gateway_id: str) -> None:
    """Another process's doing: there is no event to wait for."""
    key = keys.record(request_id)
    async with asyncio.timeout(60):
        while any(  # noqa: ASYNC110
            field.startswith(f"f:{gateway_id}:".encode())
            for field in await node.call(lambda client: client.hkeys(key))
        ):
            await asyncio.sleep(0.05)


async def test_deadline_while_waiting(redis_server: RedisServer, node: Node):
    """A request whose deadline passes in the queue ends then, not at its turn, and names the stage."""
    await know_the_model(node)
    async with scheduling(redis_server.url), serving(node) as gateway:
        request_id = await gateway.admit(budget_s=0.4)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.EXPIRED
        assert terminal.failure is not None
        assert terminal.failure.code == "DEADLINE_EXCEEDED"
        assert terminal.failure.metadata == {"stage": "queue"}
        await eventually_empty(node)


async def test_deadline_that_the_worker_ignores(redis_server: RedisServer, node: Node):
    """The worker is told the time left; one that goes on is stopped by the leader a little later."""
    worker = FakeWorker(steps_left=2)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        request_id = await gateway.admit(max_tokens=50, budget_s=3.0)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.EXPIRED
        assert terminal.usage.completion_tokens == 2
        (assigned,) = worker.assigns
        assert 0 < assigned.remaining_ms <= 3000


async def test_nobody_to_run_it(redis_server: RedisServer, node: Node):
    """A request that does not want to be held is refused when there is no worker; others wait."""
    await know_the_model(node)
    async with scheduling(redis_server.url), serving(node) as gateway:
        waiting = await gateway.admit()
        refused = await gateway.admit(hold=False)
        terminal = await gateway.terminal(refused)
        assert terminal.failure is not None
        assert terminal.failure.reason == "NO_WORKER"
        record = await following.read_record(node, waiting, bound_s=5)
        assert record is not None
        assert record.status is RequestStatus.QUEUED


async def test_damage_is_contained(redis_server: RedisServer, node: Node):
    """Headers, bodies and records that make no sense end their own request; a healthy one beside them runs."""
    worker = FakeWorker()
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        bad_header = await gateway.admit(header=b"\xff\xff")
        bad_body = await gateway.admit(body=b"\xff\xff")
        for bad in (bad_header, bad_body):
            terminal = await gateway.terminal(bad)
            assert terminal.status is RequestStatus.FAILED
            assert terminal.failure is not None
            assert (terminal.failure.code, terminal.failure.reason) == (
                "INTERNAL",
                "UNDECODABLE_RECORD",
            )
        inbox_key = keys.inbox(bad_body.partition, Priority.NORMAL)
        await node.call(lambda c: c.xadd(inbox_key, {"nonsense": "1"}))
        await node.call(
            lambda c: c.xadd(
                inbox_key,
                {"id": str(bad_body) + "0", "header": "", "admitted_ms": 1, "deadline_ms": 1},
            )
        )
        healthy = await gateway.admit((5,), max_tokens=3)
        assert (await gateway.ended(healthy)).choices[0].token_ids == expected((5,), 3)
        await eventually_empty(node)
