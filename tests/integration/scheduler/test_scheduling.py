"""The planner's decisions carried out: over a real Redis and real sessions, with a worker that has no model."""

import pytest

from common.domain import FinishReason, Priority
from common.request_status import RequestStatus
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import eventually_empty, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]


async def test_a_running_request_makes_room_and_loses_nothing(
    redis_server: RedisServer, node: Node
):
    """A HIGH request starts on a full worker; the NORMAL one goes on from its tokens, each logged once."""
    worker = FakeWorker(max_seqs=1, step_s=0.05)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        long = await gateway.admit((1, 1), max_tokens=60)
        await gateway.until(long, lambda p: p.next_seq > 0)
        high = await gateway.admit((2, 2), max_tokens=3, priority=Priority.HIGH)
        await gateway.ended(high)
        assert gateway.progress[str(long)].last_finish is None
        progress = await gateway.ended(long)
        assert progress.choices[0].token_ids == expected((1, 1), 60)
        terminal = await gateway.terminal(long)
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (2, 60)
        assert terminal.timings.attempts == 2
        assert [one.body.request_id for one in worker.assigns] == [str(long), str(high), str(long)]
        assert scheduler.metric("headrace_preemptions_asked_total") == 1
        await eventually_empty(node)


async def test_equals_do_not_drive_one_another_out(redis_server: RedisServer, node: Node):
    """A second NORMAL request waits for the first."""
    worker = FakeWorker(max_seqs=1, step_s=0.05)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        first = await gateway.admit((1, 1), max_tokens=20)
        await gateway.until(first, lambda p: p.next_seq > 0)
        second = await gateway.admit((2, 2), max_tokens=2)
        await gateway.ended(second)
        assert gateway.progress[str(first)].last_finish is not None
        assert scheduler.metric("headrace_preemptions_asked_total") == 0


async def test_a_worker_whose_step_does_not_end_gets_nothing_more(
    redis_server: RedisServer, node: Node
):
    """Though it has the most room, and goes on giving life signs: what it got would wait there for its replacement."""
    hung = FakeWorker("w1", step_age_ms=60_000)
    well = FakeWorker("w2", "i2", max_seqs=1)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(hung, scheduler.address),
        working(well, scheduler.address),
    ):
        await well.until(lambda w: w.is_welcome)
        await hung.until(lambda w: w.is_welcome and w.num_beats > 4)
        for number in range(6):
            request_id = await gateway.admit((number,), 3)
            await gateway.ended(request_id)
        assert not hung.assigns
        hung.step_age_ms = 0  # the step has ended after all
        await gateway.admit((9,), 10_000)
        await gateway.admit((10,), 10_000)
        await hung.until(lambda w: w.assigns)


async def test_a_tenant_that_floods_waits_behind_one_that_does_not(
    redis_server: RedisServer, node: Node
):
    """One request of a second tenant is next, though the first has twenty that came before it."""
    worker = FakeWorker(max_seqs=1, steps_left=0)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        flood = [await gateway.admit((1,) * 600, max_tokens=30, tenant="flood") for _ in range(20)]
        await worker.until(lambda w: len(w.assigns) == 1)
        quiet = await gateway.admit((2, 2), max_tokens=2, tenant="quiet")
        await scheduler.metric_becomes("headrace_num_requests_waiting", 20)
        worker.steps_left = None
        await gateway.ended(quiet)
        known = [gateway.progress[str(r)] for r in flood if str(r) in gateway.progress]
        ended = [progress for progress in known if progress.last_finish is not None]
        assert len(ended) <= 3
        for request_id in flood:
            await gateway.ended(request_id)


async def test_a_deadline_out_of_reach_ends_a_request_in_the_queue(
    redis_server: RedisServer, node: Node
):
    """No worker sees it, it ends no later than its deadline, and the end says that it waited in the queue."""
    worker = FakeWorker(max_seqs=1, steps_left=0)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        holder = await gateway.admit((1, 1), max_tokens=2)
        await worker.until(lambda w: len(w.assigns) == 1)
        late = await gateway.admit((2, 2), budget_s=0.3, has_deadline=True)
        progress = await gateway.ended(late)
        assert progress.last_finish is not None
        assert progress.last_finish.reason is FinishReason.DEADLINE
        terminal = await gateway.terminal(late)
        assert terminal.status is RequestStatus.EXPIRED
        assert terminal.failure is not None
        assert terminal.failure.metadata["stage"] == "queue"
        worker.steps_left = None
        await gateway.ended(holder)
        assert [one.body.request_id for one in worker.assigns] == [str(holder)]
