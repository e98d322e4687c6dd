"""Redis loses the end of a reply log, as in a fail-over: the leader writes again what it holds, before anything new."""

import pytest

from common import keys
from common.log_fold import LogFold
from common.records import FenceRecord, LogRecord, Progress, TokensRecord
from common.streams import inbox, reply_log
from common.streams.node import Node
from common.wire.records import decode_log_batch, encode_log_batch
from tests.integration.scheduler.fake_gateway import PARTITION, eventually_empty, own_by, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def entries(node: Node) -> list[reply_log.LogEntry]:
    return [entry async for entry in reply_log.read_range(node, "g1", "0-0", "+")]


async def lose_all_but(node: Node, num_kept: int) -> None:
    """The log's end, and all marks, are gone."""
    lost = [entry.id for entry in (await entries(node))[num_kept:]]
    assert lost
    await node.call(lambda client: client.xdel(keys.reply_log("g1"), *lost))
    await node.call(lambda client: client.delete(keys.log_marks("g1")))


async def folded(node: Node, request_id: object) -> Progress:
    """What a reader finds that knows nothing; asserts that it finds no gap."""
    fold, progress = LogFold(), Progress()
    for entry in await entries(node):
        for record in decode_log_batch(entry.payload):
            if record.request_id == str(request_id):
                fact = fold.apply(record)
                if fact is not None:
                    progress.add(fact)
    return progress


async def test_a_lost_tail_is_written_again(redis_server: RedisServer, node: Node):
    """Whoever reads the log finds every token, in order, as soon as one more is there; none is counted twice."""
    worker = FakeWorker(steps_left=0)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        first = await gateway.admit((4, 4), max_tokens=9)
        second = await gateway.admit((4, 5), max_tokens=9)
        await worker.until(lambda w: len(w.running) == 2)
        # Two appends or more, and none is under way when the end is cut off.
        for steps, num_logged in ((1, 1), (5, 6)):
            worker.steps_left = steps
            for request_id in (first, second):
                await gateway.until(request_id, lambda p, num=num_logged: p.next_seq == num)
        await lose_all_but(node, 1)
        worker.steps_left = None
        for request_id, prompt in ((first, (4, 4)), (second, (4, 5))):
            told = await gateway.ended(request_id)
            found = await folded(node, request_id)
            assert found.choices == told.choices
            assert found.choices[0].token_ids == expected(prompt, 9)
            assert (await gateway.terminal(request_id)).usage.completion_tokens == 9
        await scheduler.metric_becomes("headrace_generation_tokens_total", 18)
        await eventually_empty(node)


async def test_a_lost_fence_is_written_again(redis_server: RedisServer, node: Node):
    """A former owner whose fence went with the tail is still kept out."""
    await inbox.create_groups(node, PARTITION)
    async with serving(node) as gateway:
        request_id = await gateway.admit((6, 6), max_tokens=6)
        owned = await own_by(node, "zombie", request_id)
        worker = FakeWorker(steps_left=2)
        async with (
            scheduling(redis_server.url) as scheduler,
            working(worker, scheduler.address),
        ):
            await gateway.until(request_id, lambda p: p.next_seq == 2)
            await lose_all_but(node, 0)
            worker.steps_left = 1
            await gateway.until(request_id, lambda p: p.next_seq == 3)
            late = TokensRecord(3, 0, (999,), "x", (1,))
            batch = encode_log_batch([LogRecord(str(request_id), owned.epoch, late)])
            await reply_log.append(node, "g1", batch, {})
            worker.steps_left = None
            await gateway.ended(request_id)
        found = await folded(node, request_id)
        assert found.choices[0].token_ids == expected((6, 6), 6)
        kinds = [
            type(record.fact)
            for stored in await entries(node)
            for record in decode_log_batch(stored.payload)
        ]
        assert kinds[0] is FenceRecord
