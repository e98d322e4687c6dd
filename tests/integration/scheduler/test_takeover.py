"""Schedulers and workers die, pause and come back; the tokens are those of an undisturbed run."""

import pytest

from common.domain import FinishReason
from common.records import FinishRecord, LogRecord, PromptRecord, TokensRecord
from common.request_status import RequestStatus
from common.streams import cards, following, inbox, leases, ownership, reply_log, wake
from common.streams.node import Node
from common.wire.card import encode_card
from common.wire.records import encode_log_batch
from tests.integration.scheduler.fake_gateway import PARTITION, eventually_empty, own_by, serving
from tests.integration.scheduler.fake_worker import MODEL, FakeWorker, expected, make_card, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_lost_worker_is_resumed_elsewhere(redis_server: RedisServer, node: Node):
    """A worker dies mid-generation: another goes on behind what is logged; one loss is counted."""
    first, second = FakeWorker("w1", steps_left=4), FakeWorker("w2", "i2")
    async with scheduling(redis_server.url) as scheduler, serving(node) as gateway:
        async with working(first, scheduler.address) as task:
            request_id = await gateway.admit((4, 4), max_tokens=10)
            await gateway.until(request_id, lambda p: p.next_seq == 4)
            task.cancel()
        async with working(second, scheduler.address):
            progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected((4, 4), 10)
        (assigned,) = second.assigns
        assert list(assigned.resume.choices[0].token_ids) == expected((4, 4), 4)
        assert assigned.attempt == 2
        terminal = await gateway.terminal(request_id)
        assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (2, 10)
        assert terminal.timings.attempts == 2
        await eventually_empty(node)
        await scheduler.metric_becomes("headrace_worker_losses_total", 1)


async def test_a_reconnect_is_no_loss(redis_server: RedisServer, node: Node):
    """The same incarnation back within its grace: resumed there, and nothing is counted against the request."""
    worker = FakeWorker(steps_left=3)
    async with (
        scheduling(redis_server.url, reconnect_grace_s=30.0) as scheduler,
        serving(node) as gateway,
    ):
        async with working(worker, scheduler.address) as task:
            request_id = await gateway.admit((4, 5), max_tokens=8)
            await gateway.until(request_id, lambda p: p.next_seq == 3)
            task.cancel()
        worker.steps_left = None
        worker.running.clear()
        async with working(worker, scheduler.address):
            progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected((4, 5), 8)
        assert scheduler.metric("headrace_worker_losses_total") == 0


async def test_a_started_request_waits_for_equal_numerics(redis_server: RedisServer, node: Node):
    """A worker with another fingerprint gets nothing that has started; after the bound it fails clearly."""
    first, other = FakeWorker("w1", steps_left=2), FakeWorker("w2", "i2", fingerprint="fp2")
    async with (
        scheduling(redis_server.url, resume_wait_s=1.0) as scheduler,
        serving(node) as gateway,
        working(other, scheduler.address),
    ):
        await other.until(lambda w: w.is_welcome)
        other.max_seqs = (
            0  # keeps it from taking the fresh request, once its life signs have said so
        )
        told = other.num_beats + 4
        await other.until(lambda w: w.num_beats >= told)
        async with working(first, scheduler.address) as task:
            request_id = await gateway.admit(max_tokens=9)
            await gateway.until(request_id, lambda p: p.next_seq == 2)
            task.cancel()
        other.max_seqs = 8
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.FAILED
        assert terminal.failure is not None
        assert (terminal.failure.code, terminal.failure.reason) == (
            "UNAVAILABLE",
            "NO_EQUAL_WORKER",
        )
        assert terminal.usage.completion_tokens == 2
        assert other.assigns == []


async def test_a_revision_whose_last_worker_has_left(redis_server: RedisServer, node: Node):
    """What is bound to it and has not started fails clearly after the bound; the new revision's requests run on."""
    old, new = FakeWorker("w1"), FakeWorker("w2", "i2", fingerprint="fp2", revision="r2")
    async with (
        scheduling(redis_server.url, resume_wait_s=1.0) as scheduler,
        serving(node) as gateway,
    ):
        async with working(old, scheduler.address):
            await gateway.ended(await gateway.admit())
        async with working(new, scheduler.address):
            bound, free = await gateway.admit(), await gateway.admit(revision="r2")
            terminal = await gateway.terminal(bound)
            assert (await gateway.terminal(free)).status is RequestStatus.FINISHED
    assert terminal.status is RequestStatus.FAILED
    assert terminal.failure is not None
    assert (terminal.failure.code, terminal.failure.reason) == ("UNAVAILABLE", "REVISION_LEFT")
    assert terminal.failure.metadata["model_revision"] == "r1"
    assert terminal.usage.completion_tokens == 0
    assert len(new.assigns) == 1


async def test_poison_ends_after_three_losses(redis_server: RedisServer, node: Node):
    """A request that three workers did not survive is DEAD for the reason POISON_REQUEST."""
    async with scheduling(redis_server.url) as scheduler, serving(node) as gateway:
        request_id = await gateway.admit(max_tokens=9)
        for number in range(3):
            worker = FakeWorker(f"w{number}", f"i{number}", steps_left=0)
            async with working(worker, scheduler.address):
                await worker.until(lambda w: w.running)
        terminal = await gateway.terminal(request_id)
        assert terminal.status is RequestStatus.DEAD
        assert terminal.failure is not None
        assert terminal.failure.reason == "POISON_REQUEST"
        await scheduler.metric_becomes("headrace_worker_losses_total", 3)
        await scheduler.metric_becomes("headrace_dead_letters_total", 1)


async def test_a_silent_worker_is_replaced(redis_server: RedisServer, node: Node):
    """A worker that gives no life sign loses its session, and its requests go elsewhere."""
    silent, second = FakeWorker("w1", beats=False, steps_left=1), FakeWorker("w2", "i2")
    async with (
        scheduling(redis_server.url, worker_heartbeat_ms=200) as scheduler,
        serving(node) as gateway,
        working(silent, scheduler.address),
    ):
        request_id = await gateway.admit((8,), max_tokens=6)
        await gateway.until(request_id, lambda p: p.next_seq == 1)
        silent.max_seqs = 0
        async with working(second, scheduler.address):
            progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected((8,), 6)


async def test_returned_sequences_count_no_loss(redis_server: RedisServer, node: Node):
    """A drained worker gives back what it runs: resumed elsewhere, no loss, no new work for it.

    An order that outlived its leader is for the life in which the worker was ordered to leave, not for its next.
    """
    await wake.order_drain(node, PARTITION, wake.DrainOrder("w1", "i0", 7), bound_s=5)
    first, second = FakeWorker("w1", steps_left=2), FakeWorker("w2", "i2")
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(first, scheduler.address),
    ):
        request_id = await gateway.admit((3, 1), max_tokens=7)
        await gateway.until(request_id, lambda p: p.next_seq == 2)
        await wake.order_drain(node, PARTITION, wake.DrainOrder("w1", "i1", 500), bound_s=5)
        await first.until(lambda w: any(m.HasField("drain") for m in w.received))
        assert [m.drain.grace_ms for m in first.received if m.HasField("drain")] == [500]
        first.give_back_all("drained")
        async with working(second, scheduler.address):
            progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected((3, 1), 7)
        assert len(first.assigns) == 1
        assert scheduler.metric("headrace_worker_losses_total") == 0


async def test_a_standby_takes_over(redis_server: RedisServer, node: Node):
    """The leader dies mid-generation: the standby fences, goes on from the log, without gap or repeat."""
    worker = FakeWorker(step_s=0.03)
    async with (
        scheduling(redis_server.url, "s1") as leader,
        serving(node) as gateway,
        working(worker, leader.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        async with scheduling(redis_server.url, "s2") as standby:
            # Workers know both schedulers; this one dials the leader, then whoever it is sent to.
            prompts = [(n, 3) for n in range(6)]
            ids = [await gateway.admit(prompt, max_tokens=300) for prompt in prompts]
            queued = [await gateway.admit((9, n), max_tokens=3) for n in range(4)]
            for request_id in ids:
                await gateway.until(request_id, lambda p: p.next_seq >= 5)
            async with working(FakeWorker("w2", "i2"), standby.address):
                await leader.die()
                for prompt, request_id in zip(prompts, ids, strict=True):
                    progress = await gateway.ended(request_id)
                    assert progress.choices[0].token_ids == expected(prompt, 300)
                    assert progress.choices[0].text == "".join(
                        f"{token} " for token in expected(prompt, 300)
                    )
                for number, request_id in enumerate(queued):
                    progress = await gateway.ended(request_id)
                    assert progress.choices[0].token_ids == expected((9, number), 3)
                terminal = await gateway.terminal(ids[0])
                assert terminal.usage.completion_tokens == 300
                assert standby.metric("headrace_takeovers_total") >= 6
                await eventually_empty(node)


async def test_a_clean_stop_hands_over_at_once(redis_server: RedisServer, node: Node):
    """A scheduler that stops gives its lease back: the standby goes on without waiting out a lease."""
    first, second = FakeWorker("w1", steps_left=5), FakeWorker("w2", "i2")
    async with (
        scheduling(redis_server.url, "s1") as leader,
        serving(node) as gateway,
        working(first, leader.address),
    ):
        request_id = await gateway.admit((2, 9), max_tokens=100)
        await gateway.until(request_id, lambda p: p.next_seq >= 5)
        first.fingerprint = "fp2"  # when it comes back, it may not go on with what has started
        async with scheduling(redis_server.url, "s2") as standby:
            await leader.stop()
            holder = await leases.read_leader(node, PARTITION)
            assert holder is None or holder.address == standby.address, "the lease was given back"
            record = await following.read_record(node, request_id, bound_s=5)
            assert record is not None
            assert record.status is RequestStatus.QUEUED
            async with working(second, standby.address):
                progress = await gateway.ended(request_id)
            assert progress.choices[0].token_ids == expected((2, 9), 100)
            assert len(second.assigns) == 1


async def test_a_zombies_append_counts_for_nobody(redis_server: RedisServer, node: Node):
    """What a former owner appends behind the fence is ignored: by readers and by the next takeover."""
    await inbox.create_groups(node, PARTITION)
    async with serving(node) as gateway:
        request_id = await gateway.admit((6, 6), max_tokens=6)
        owned = await own_by(node, "zombie", request_id)
        await ownership.take(node, [(request_id, owned.epoch)], "w0", "fp1")
        tokens = expected((6, 6), 2)

        def batch(seq: int, ids: tuple[int, ...]) -> bytes:
            text = "".join(f"{token} " for token in ids)
            chars = tuple(len(f"{token} ") for token in ids)
            fact = TokensRecord(seq, 0, ids, text, chars)
            return encode_log_batch([LogRecord(str(request_id), owned.epoch, fact)])

        await reply_log.append(node, "g1", batch(0, tuple(tokens)), {str(request_id): 0})
        worker = FakeWorker(steps_left=1)
        async with scheduling(redis_server.url) as scheduler:
            async with working(worker, scheduler.address):
                await gateway.until(request_id, lambda p: p.next_seq == 3)
                await reply_log.append(node, "g1", batch(2, (999, 999, 999)), {})
                answer = await ownership.finish(
                    node, request_id, owned.epoch, RequestStatus.FAILED, b""
                )
                assert answer == ownership.Lost()
                worker.steps_left = None
                progress = await gateway.ended(request_id)
            assert progress.choices[0].token_ids == expected((6, 6), 6)
            terminal = await gateway.terminal(request_id)
            assert terminal.progress.choices[0].token_ids == expected((6, 6), 6)


async def test_a_logged_finish_outranks_a_cancel(redis_server: RedisServer, node: Node):
    """The old owner logged the end and died before the record: the result stands, whatever was flagged since."""
    await inbox.create_groups(node, PARTITION)
    async with serving(node) as gateway:
        request_id = await gateway.admit((6, 7), max_tokens=1)
        owned = await own_by(node, "dead", request_id)
        await ownership.take(node, [(request_id, owned.epoch)], "w0", "fp1")
        token = expected((6, 7), 1)[0]
        facts = [
            PromptRecord(0, "w0"),
            TokensRecord(0, 0, (token,), f"{token} ", (len(f"{token} "),)),
            FinishRecord(1, 0, FinishReason.LENGTH),
        ]
        records = [LogRecord(str(request_id), owned.epoch, fact) for fact in facts]
        await reply_log.append(node, "g1", encode_log_batch(records), {str(request_id): 0})
        await following.cancel(node, request_id, "cancelled", bound_s=5)
        await cards.store_card(node, MODEL, "r1", encode_card(make_card()))
        async with scheduling(redis_server.url):
            terminal = await gateway.terminal(request_id)
            await eventually_empty(node)
        assert terminal.status is RequestStatus.FINISHED
        assert terminal.usage.completion_tokens == 1
        assert terminal.seed == 7
