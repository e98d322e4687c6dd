"""A request from admission to ack, through a real scheduler, a real Redis and a real worker session."""

import asyncio

import pytest

from common.domain import FinishReason, Partition
from common.request_status import RequestStatus
from common.streams import cards, leases, snapshots
from common.streams.node import Node
from common.wire.card import decode_card
from common.wire.snapshot import decode_status
from tests.integration.scheduler.fake_gateway import PARTITION, eventually_empty, serving
from tests.integration.scheduler.fake_worker import MODEL, FakeWorker, expected, make_card, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration


async def test_a_request_runs_and_is_settled(redis_server: RedisServer, node: Node):
    """Tokens in the log, exact terminal record, entry acked, no mark left."""
    worker = FakeWorker()
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        request_id = await gateway.admit((5, 6), max_tokens=4)
        progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected((5, 6), 4)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.FINISHED
        assert terminal.progress.choices[0].token_ids == expected((5, 6), 4)
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (2, 4)
        assert (terminal.seed, terminal.worker_id, terminal.failure) == (7, "w1", None)
        assert terminal.timings.attempts == 1
        assert 0 < terminal.timings.queue_s <= terminal.timings.time_to_first_token_s
        assert terminal.timings.time_to_first_token_s <= terminal.timings.total_s
        await eventually_empty(node)
        assert scheduler.metric("headrace_dispatched_total") == 1
        assert scheduler.metric("headrace_num_requests_running") == 0


async def test_a_new_models_card_is_stored(redis_server: RedisServer, node: Node):
    """A worker's card comes in chunks, is checked against its hash, and makes the model known."""
    worker = FakeWorker()
    async with scheduling(redis_server.url) as scheduler, working(worker, scheduler.address):
        await worker.until(lambda w: w.is_welcome)
        assert await cards.read_index(node) == {MODEL: "r1"}
        data = await cards.read_card(node, MODEL, "r1")
        assert decode_card(data or b"") == make_card()


async def test_counters_stand_before_their_first_event(redis_server: RedisServer, node: Node):
    """An increase from nothing shows on a dashboard only where nothing was shown before."""
    worker = FakeWorker()
    async with scheduling(redis_server.url) as scheduler, working(worker, scheduler.address):
        await worker.until(lambda w: w.is_welcome)
        shown = scheduler.metrics.scrape()[0].decode().splitlines()
    label = f'model_name="{MODEL}"'
    for name in ("takeovers", "worker_losses", "dead_letters", "generation_tokens"):
        assert f"headrace_{name}_total{{{label}}} 0.0" in shown
    assert f'headrace_dispatched_total{{class="critical",{label}}} 0.0' in shown
    assert f'headrace_requests_ended_total{{{label},status="dead"}} 0.0' in shown


async def test_a_wrong_card_is_refused(redis_server: RedisServer, node: Node):
    """A card that does not have the announced hash makes no model known."""
    worker = FakeWorker(bad_card=True)
    async with scheduling(redis_server.url) as scheduler, working(worker, scheduler.address):
        await worker.until(lambda w: len(w.received) >= 2)
        assert await cards.read_index(node) == {}


async def test_many_requests_share_workers(redis_server: RedisServer, node: Node):
    """Forty requests on two workers of eight slots: each gets its own tokens, nobody is over-assigned."""
    workers = [FakeWorker("w1"), FakeWorker("w2", "i2")]
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(workers[0], scheduler.address),
        working(workers[1], scheduler.address),
    ):
        for worker in workers:
            await worker.until(lambda w: w.is_welcome)
        prompts = [(n, 2 * n) for n in range(40)]
        ids = [await gateway.admit(prompt, max_tokens=20) for prompt in prompts]
        results = await asyncio.gather(*(gateway.ended(request_id) for request_id in ids))
        for prompt, progress in zip(prompts, results, strict=True):
            assert progress.choices[0].token_ids == expected(prompt, 20)
            assert progress.last_finish is not None
            assert progress.last_finish.reason is FinishReason.LENGTH
        assert all(worker.assigns for worker in workers)
        await eventually_empty(node)


async def test_the_snapshot_shows_queue_and_workers(redis_server: RedisServer, node: Node):
    """Within a second the leader's snapshot names its workers and where a waiting request stands."""
    worker = FakeWorker(max_seqs=1, steps_left=0)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await gateway.admit()
        await worker.until(lambda w: w.running)
        waiting = await gateway.admit()
        async with asyncio.timeout(60):
            while True:
                data = await snapshots.read_snapshot(node, PARTITION, bound_s=5)
                status = decode_status(data) if data else None
                if status is not None and status.positions and status.num_running:
                    break
                await asyncio.sleep(0.05)
        assert status.leader == scheduler.address
        assert [one.worker_id for one in status.workers] == ["w1"]
        assert [(one.request_id, one.position) for one in status.positions] == [(str(waiting), 0)]


async def test_whoever_comes_or_goes_is_shown_at_once(
    redis_server: RedisServer, node: Node, monkeypatch: pytest.MonkeyPatch
):
    """A worker that serves is in the snapshot without waiting for the next one, and is gone from it as soon as it left."""
    monkeypatch.setattr("scheduler.snapshot.INTERVAL_S", 3600.0)

    async def shown_are(*worker_ids: str) -> None:
        async with asyncio.timeout(15):
            while True:
                data = await snapshots.read_snapshot(node, PARTITION, bound_s=1)
                if data and sorted(w.worker_id for w in decode_status(data).workers) == [
                    *worker_ids
                ]:
                    return
                await asyncio.sleep(0.02)

    async with scheduling(redis_server.url) as scheduler, serving(node):
        async with working(FakeWorker("w1"), scheduler.address):
            await shown_are("w1")
            async with working(FakeWorker("w2", "i2"), scheduler.address):
                await shown_are("w1", "w2")
            await shown_are("w1")
        await shown_are()


async def test_one_process_leads_several_partitions(redis_server: RedisServer, node: Node):
    """Two partitions in one scheduler: each new worker goes to the partition that has fewest."""
    workers = [FakeWorker("w1"), FakeWorker("w2", "i2")]
    async with (
        scheduling(redis_server.url, partitions=2) as scheduler,
        working(workers[0], scheduler.address),
    ):
        await workers[0].until(lambda w: w.is_welcome)
        async with asyncio.timeout(60):
            while len([k async for k in leads(node)]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with working(workers[1], scheduler.address):
            await workers[1].until(lambda w: w.is_welcome)
            welcomes = [m.welcome for w in workers for m in w.received if m.HasField("welcome")]
            assert {welcome.partition for welcome in welcomes} == {0, 1}


async def leads(node: Node):
    """Partitions of the model that somebody leads."""
    for index in range(2):
        if await leases.read_leader(node, Partition(MODEL, index)) is not None:
            yield index
