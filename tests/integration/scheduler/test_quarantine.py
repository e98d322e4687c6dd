"""Requests under which workers died: alone, cleared or dead, whoever leads meanwhile."""

import asyncio

import pytest

from common.domain import RequestId
from common.request_status import RequestStatus
from common.streams import dead_letters, following, inbox, ownership
from common.streams.node import Node
from scheduler.failures import MAX_STALLS
from tests.integration.scheduler.fake_gateway import (
    PARTITION,
    eventually_empty,
    know_the_model,
    serving,
)
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import RunningScheduler, scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def lose_workers(scheduler: RunningScheduler, count: int, *, num_requests: int) -> None:
    """So many workers die while they run everything there is."""
    for number in range(count):
        worker = FakeWorker(f"lost{number}", f"il{number}", steps_left=0)
        async with working(worker, scheduler.address):
            await worker.until(lambda w: len(w.running) == num_requests)


async def test_suspects_run_alone_and_are_cleared(redis_server: RedisServer, node: Node):
    """After two losses each of them runs without company and ends as if nothing had been; fresh ones go between."""
    async with scheduling(redis_server.url) as scheduler, serving(node) as gateway:
        suspects = [await gateway.admit((n, 7), max_tokens=6) for n in range(3)]
        await lose_workers(scheduler, 2, num_requests=3)
        worker = FakeWorker("w", "i")
        async with working(worker, scheduler.address):
            fresh = [await gateway.admit((n, 8), max_tokens=6) for n in range(5)]
            for number, request_id in enumerate(suspects):
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((number, 7), 6)
            for number, request_id in enumerate(fresh):
                progress = await gateway.ended(request_id)
                assert progress.choices[0].token_ids == expected((number, 8), 6)
        names = {str(request_id) for request_id in suspects}
        assert {crowd for crowd in worker.crowds if crowd & names} == {
            frozenset({name}) for name in names
        }
        await eventually_empty(node)
        assert scheduler.metric("headrace_dead_letters_total") == 0


async def test_a_death_in_quarantine_is_the_end(redis_server: RedisServer, node: Node):
    """The third loss makes a dead letter with body and history; what waited beside it goes on."""
    async with scheduling(redis_server.url) as scheduler, serving(node) as gateway:
        poison = await gateway.admit((6, 6), max_tokens=6)
        await lose_workers(scheduler, 2, num_requests=1)
        last = FakeWorker("last", "ilast", steps_left=2)
        async with working(last, scheduler.address):
            await gateway.until(poison, lambda p: p.next_seq == 2)
            innocent = await gateway.admit((5, 5), max_tokens=6)
        async with working(FakeWorker("w", "i"), scheduler.address):
            terminal = await gateway.terminal(poison)
            assert terminal.status is RequestStatus.DEAD
            assert terminal.failure is not None
            assert (terminal.failure.code, terminal.failure.reason) == (
                "INTERNAL",
                "POISON_REQUEST",
            )
            assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (2, 2)
            progress = await gateway.ended(innocent)
            assert progress.choices[0].token_ids == expected((5, 5), 6)
        letter = await dead_letters.find_letter(node, poison, bound_s=5)
        assert letter is not None
        assert [(one.worker_id, one.tokens, one.outcome) for one in letter.attempts] == [
            ("lost0", 0, "worker lost"),
            ("lost1", 0, "worker lost"),
            ("last", 2, "worker lost"),
        ]
        assert b"sim" in letter.body
        await scheduler.metric_becomes("headrace_dead_letters_total", 1)
        await eventually_empty(node)


async def test_the_count_survives_a_takeover(redis_server: RedisServer, node: Node):
    """Losses and history are in the record: a new leader goes on counting, and keeps suspects alone."""
    async with serving(node) as gateway:
        async with scheduling(redis_server.url, "s1") as first:
            poison = await gateway.admit((6, 6), max_tokens=6)
            await lose_workers(first, 2, num_requests=1)
            await _until_queued(node, poison)
            await first.die()
        async with scheduling(redis_server.url, "s2") as second:
            other = await gateway.admit((1, 1), max_tokens=50)
            worker = FakeWorker("last", "ilast", steps_left=0)
            async with working(worker, second.address):
                await worker.until(lambda w: w.running)
                assert set(worker.running) == {str(poison)}
            terminal = await gateway.terminal(poison)
            assert terminal.status is RequestStatus.DEAD
            letter = await dead_letters.find_letter(node, poison, bound_s=5)
            assert letter is not None
            assert [one.outcome for one in letter.attempts] == ["worker lost"] * 3
            await following.cancel(node, other, "test", bound_s=5)
            await gateway.ended(other)


async def _until_queued(node: Node, request_id: RequestId) -> None:
    async with asyncio.timeout(60):
        while True:
            record = await following.read_record(node, request_id, bound_s=5)
            assert record is not None
            if record.status is RequestStatus.QUEUED:
                return
            await asyncio.sleep(0.02)


async def test_a_reconnect_clears_a_suspect(redis_server: RedisServer, node: Node):
    """Two losses, of which the second was only a connection: it is one loss, and the request has company again."""
    worker = FakeWorker(steps_left=0)
    async with (
        scheduling(redis_server.url, reconnect_grace_s=5.0) as scheduler,
        serving(node) as gateway,
    ):
        request_id = await gateway.admit((4, 5), max_tokens=8)
        await lose_workers(scheduler, 1, num_requests=1)
        async with working(worker, scheduler.address) as task:
            await worker.until(lambda w: w.running)
            task.cancel()
        worker.running.clear()
        async with working(worker, scheduler.address):
            beside = await gateway.admit((4, 6), max_tokens=8)
            await worker.until(lambda w: len(w.running) == 2)
            worker.steps_left = None
            await gateway.ended(request_id)
            await gateway.ended(beside)


async def test_takeovers_without_progress_end(redis_server: RedisServer, node: Node):
    """A request under which schedulers are lost again and again without a token more fails for that reason."""
    await know_the_model(node)
    await inbox.create_groups(node, PARTITION)
    async with serving(node) as gateway:
        request_id = await gateway.admit((6, 6), max_tokens=6)
        (entry,) = await inbox.read_new(node, PARTITION, "s0")
        for _ in range(MAX_STALLS):
            place = (request_id, entry.priority, entry.entry_id)
            (owned,) = await ownership.own(node, "s0", [place])
            assert isinstance(owned, ownership.Owned)
            await ownership.take(node, [(request_id, owned.epoch)], "w0", "fp1")
        async with scheduling(redis_server.url) as scheduler:
            terminal = await gateway.terminal(request_id)
            assert terminal.status is RequestStatus.FAILED
            assert terminal.failure is not None
            assert terminal.failure.reason == "TAKEOVERS_WITHOUT_PROGRESS"
            assert scheduler.metric("headrace_dead_letters_total") == 0
            await eventually_empty(node)
