"""Usage is exact however requests end: log, records and metrics say the same."""

import asyncio
import random

import pytest

from common.domain import RequestId
from common.lengths import LENGTHS
from common.request_status import RequestStatus
from common.streams import following
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import FakeGateway, eventually_empty, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import RunningScheduler, scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NUM_REQUESTS = 30


async def test_log_records_and_metrics_agree(redis_server: RedisServer, node: Node):
    """Finished, cancelled, expired, failed and dead requests, over dying workers and a change of leaders: each logged
    token counts once, a prompt once it was taken up, and the sums are equal everywhere."""
    chooser = random.Random(3)
    async with serving(node) as gateway, scheduling(redis_server.url, "s1") as first:
        dead = await _dead(gateway, first)
        requests = await _admit(gateway, chooser)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_cancel_some(gateway, chooser, requests))
            for number in range(3):
                await _work_and_die(first, number)
        async with scheduling(redis_server.url, "s2") as second:
            await first.stop()
            last = FakeWorker(
                "last",
                "i-last",
                step_s=0.001,
                fails=lambda s: len(s.prompt) == 4 and s.num_generated >= 5,
            )
            async with working(last, second.address):
                ends = [await gateway.terminal(one) for one in [dead, *requests]]
            await eventually_empty(node)
            statuses = {end.status for end in ends}
            assert statuses == {
                RequestStatus.FINISHED,
                RequestStatus.CANCELLED,
                RequestStatus.EXPIRED,
                RequestStatus.FAILED,
                RequestStatus.DEAD,
            }
            logged = [gateway.progress[str(one)] for one in [dead, *requests]]
            for one, end in zip(logged, ends, strict=True):
                assert end.usage.completion_tokens == one.next_seq
                assert end.usage.completion_tokens == end.progress.next_seq
                assert end.usage.prompt_tokens == (end.prompt_tokens if one.prompt else 0)
            assert any(
                end.timings.attempts > 1 and one.next_seq
                for end, one in zip(ends, logged, strict=True)
            )
            schedulers = (first, second)
            assert _sum(schedulers, "generation") == sum(e.usage.completion_tokens for e in ends)
            assert _sum(schedulers, "prompt") == sum(e.usage.prompt_tokens for e in ends)


def _sum(schedulers: tuple[RunningScheduler, ...], kind: str) -> float:
    return sum(one.metric(f"headrace_{kind}_tokens_total") for one in schedulers)


async def _dead(gateway: FakeGateway, scheduler: RunningScheduler) -> RequestId:
    """A request that has generated two tokens when the third worker dies under it."""
    poison = await gateway.admit((9, 9, 9), max_tokens=9)
    for number in range(3):
        worker = FakeWorker(f"p{number}", f"ip{number}", steps_left=2 * (number == 2))
        async with working(worker, scheduler.address):
            await worker.until(lambda w: w.running)
            if number == 2:
                await gateway.until(poison, lambda p: p.next_seq == 2)
    assert (await gateway.terminal(poison)).status is RequestStatus.DEAD
    return poison


async def _admit(gateway: FakeGateway, chooser: random.Random) -> list[RequestId]:
    """Some of them too long for their time."""
    return [
        await gateway.admit(
            (number, *range(number % 5)),
            max_tokens=10_000 if number % 6 == 0 else chooser.randint(1, 60),
            budget_s=chooser.uniform(1.5, 3.0) if number % 6 == 0 else 60.0,
        )
        for number in range(NUM_REQUESTS)
    ]


async def _cancel_some(
    gateway: FakeGateway, chooser: random.Random, requests: list[RequestId]
) -> None:
    for request_id in requests[1::5]:
        await asyncio.sleep(chooser.uniform(0, 0.1))
        await following.cancel(gateway.node, request_id, "cancelled", bound_s=5)


async def _work_and_die(scheduler: RunningScheduler, number: int) -> None:
    """A worker that generates a little and dies; what it ran goes on with the next one."""
    worker = FakeWorker(f"w{number}", f"i{number}", steps_left=12)
    async with working(worker, scheduler.address):
        await worker.until(lambda w: w.steps_left == 0)


async def test_an_interrupted_answer_is_timed_as_a_whole(redis_server: RedisServer, node: Node):
    """The first token came before the leader died: its time is told all the same, with every dispatch."""
    async with serving(node) as gateway, scheduling(redis_server.url, "s1") as first:
        worker = FakeWorker("w1", "i1", steps_left=4)
        async with working(worker, first.address):
            request_id = await gateway.admit((4, 4), max_tokens=10)
            await gateway.until(request_id, lambda p: p.next_seq == 4)
            await first.die()
        async with (
            scheduling(redis_server.url, "s2") as second,
            working(FakeWorker("w2", "i2"), second.address),
        ):
            terminal = await gateway.terminal(request_id)
            assert terminal.progress.choices[0].token_ids == expected((4, 4), 10)
            timings = terminal.timings
            assert timings.attempts == 2
            assert 0 < timings.prefill_s < timings.time_to_first_token_s < timings.total_s
            pause_s = timings.total_s - timings.time_to_first_token_s
            assert pause_s > LENGTHS.leader_lease_s - 1, "the change of leaders was behind it"
            assert timings.queue_s + timings.prefill_s == pytest.approx(
                timings.time_to_first_token_s, abs=0.05
            )
