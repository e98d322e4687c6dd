"""Several partitions of a model, led by several schedulers: leads and workers go where they are needed."""

import asyncio

import pytest

from common.domain import Partition, RequestId
from common.streams import cards, leases
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import eventually_empty, serving
from tests.integration.scheduler.fake_worker import MODEL, FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]


async def leaders_become(node: Node, wanted: list[str], within_s: float = 60) -> None:
    """Wait until the partitions are led from these addresses, in any order: other processes' doing, no event here."""
    found: list[str] = []
    try:
        async with asyncio.timeout(scaled(within_s)):
            while sorted(found) != sorted(wanted):
                await asyncio.sleep(0.05)
                held = [
                    await leases.read_leader(node, Partition(MODEL, index))
                    for index in range(len(wanted))
                ]
                found = ["" if lease is None else lease.address for lease in held]
    except TimeoutError:
        raise AssertionError(f"led from {found}, not from {wanted}") from None


async def test_requests_in_flight_survive_a_lead_that_is_given_away(
    redis_server: RedisServer, node: Node
):
    """What ran under the first leader is finished under the second, token for token."""
    workers = [FakeWorker("w1", step_s=0.02), FakeWorker("w2", "i2", step_s=0.02)]
    async with (
        scheduling(redis_server.url, "s1", partitions=2) as first,
        serving(node) as gateway,
        working(workers[0], first.address),
        working(workers[1], first.address),
    ):
        await leaders_become(node, [first.address] * 2)
        ids = {(n,): await gateway.admit((n,), 300, partition=n % 2) for n in range(8)}
        async with scheduling(redis_server.url, "s2", partitions=2) as second:
            await leaders_become(node, [first.address, second.address])
            await _all_as_expected(gateway, ids, 300)


async def test_an_idle_worker_goes_to_the_longest_backlog(redis_server: RedisServer, node: Node):
    """One partition has more than its worker can take; the other one's worker comes and helps."""
    workers = [FakeWorker("w1", max_seqs=1), FakeWorker("w2", "i2", max_seqs=1)]
    async with (
        scheduling(redis_server.url, partitions=2) as scheduler,
        serving(node) as gateway,
        working(workers[0], scheduler.address),
    ):
        await leaders_become(node, [scheduler.address] * 2)
        async with working(workers[1], scheduler.address):
            for worker in workers:
                await worker.until(lambda w: w.is_welcome)
            ids = {(n,): await gateway.admit((n,), 400) for n in range(6)}
            await _all_as_expected(gateway, ids, 400)
        assert all(worker.assigns for worker in workers)
        await eventually_empty(node)


async def test_an_idle_worker_stays_where_it_is_unless_it_may_run_what_waits(
    redis_server: RedisServer, node: Node
):
    """A backlog of another revision does not move it; one request of its own does."""
    busy = FakeWorker("w1", max_seqs=1, step_s=0.01)
    idle = FakeWorker("w2", "i2", fingerprint="fp2", revision="r2")
    async with (
        scheduling(redis_server.url, partitions=2) as scheduler,
        serving(node) as gateway,
        working(busy, scheduler.address),
    ):
        await leaders_become(node, [scheduler.address] * 2)
        await busy.until(lambda w: w.is_welcome)
        async with working(idle, scheduler.address):
            await idle.until(lambda w: w.is_welcome)
            (at,) = _welcomed_at(busy)
            assert _welcomed_at(idle) == [1 - at]
            ids = {(n,): await gateway.admit((n,), 60, partition=at) for n in range(6)}
            await _all_as_expected(gateway, ids, 60)
            assert _welcomed_at(idle) == [1 - at]
            wanted = await gateway.admit((7,), 5, partition=at, revision="r2")
            await _all_as_expected(gateway, {(7,): wanted}, 5)
            assert _welcomed_at(idle) == [1 - at, at]
            assert _welcomed_at(busy) == [at]


def _welcomed_at(worker: FakeWorker) -> list[int]:
    return [m.welcome.partition for m in worker.received if m.HasField("welcome")]


async def test_one_worker_serves_two_partitions_in_turn(redis_server: RedisServer, node: Node):
    """Though it always has work where it is, what waits in the other partition gets its turn."""
    worker = FakeWorker(max_seqs=2, step_s=0.01)
    async with (
        scheduling(redis_server.url, partitions=2) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await leaders_become(node, [scheduler.address] * 2)
        await worker.until(lambda w: w.is_welcome)
        at = _welcomed_at(worker)[0]
        long = [await gateway.admit((n,), 3000, partition=at) for n in range(2)]
        other = await gateway.admit((7,), 5, partition=1 - at)
        progress = await gateway.ended(other)
        assert progress.choices[0].token_ids == expected((7,), 5)
        assert all(gateway.progress[str(one)].last_finish is None for one in long)


async def test_partitions_are_added_under_load_without_loss(redis_server: RedisServer, node: Node):
    """While requests run, a scheduler that wants two partitions joins: old and new ones finish exactly."""
    workers = [FakeWorker("w1", step_s=0.01), FakeWorker("w2", "i2", step_s=0.01)]
    async with (
        scheduling(redis_server.url, "s1") as first,
        serving(node) as gateway,
        working(workers[0], first.address),
        working(workers[1], first.address),
    ):
        await leaders_become(node, [first.address])
        ids = {(n,): await gateway.admit((n,), 200) for n in range(12)}
        async with scheduling(redis_server.url, "s2", partitions=2) as second:
            await leaders_become(node, [first.address, second.address])
            assert await cards.partition_count(node, MODEL) == 2
            ids |= {(n,): await gateway.admit((n,), 50, partition=n % 2) for n in range(12, 24)}
            await _all_as_expected(gateway, {p: i for p, i in ids.items() if p < (12,)}, 200)
            await _all_as_expected(gateway, {p: i for p, i in ids.items() if p >= (12,)}, 50)


async def _all_as_expected(gateway, ids: dict[tuple[int, ...], RequestId], count: int) -> None:
    for prompt, request_id in ids.items():
        progress = await gateway.ended(request_id)
        assert progress.choices[0].token_ids == expected(prompt, count), prompt
