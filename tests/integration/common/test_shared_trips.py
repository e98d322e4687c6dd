"""Calls that travel together: few round trips, each its own answer, nobody harmed by another."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from common import keys
from common.domain import Partition
from common.errors import Unavailable
from common.streams.admission import Admitted, admission_call, read_admission
from common.streams.node import Node
from common.streams.shared_trips import SharedTrips
from tests.support.redis_server import RedisServer
from tests.support.submissions import ROOMY, make_submission
from tests.support.tcp_proxy import running_proxy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITION = Partition("m", 0)
SLOT = str(PARTITION)


class CountingNode(Node):
    """Knows how often Redis was asked."""

    num_trips = 0

    async def call(self, operation, *, bound_s=None):
        self.num_trips += 1
        return await super().call(operation, bound_s=bound_s)


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[CountingNode]:
    node = CountingNode(redis_server.url)
    yield node
    await node.close()


def trips_of(node: Node, tasks: asyncio.TaskGroup, *, bound_s: float = 30.0) -> SharedTrips:
    return SharedTrips(
        node, lambda work, name: tasks.create_task(work, name=name), bound_s=bound_s
    )


async def test_what_comes_meanwhile_goes_together(node: CountingNode):
    """The first goes at once, the others behind it in one trip; each gets its own answer."""
    async with asyncio.TaskGroup() as tasks:
        trips = trips_of(node, tasks)
        wanted = [make_submission(PARTITION) for _ in range(10)]
        answers = await asyncio.gather(
            *(trips.run(SLOT, admission_call(one, ROOMY)) for one in wanted)
        )
        assert node.num_trips == 2
        assert all(isinstance(read_admission(answer), Admitted) for answer in answers)
        await trips.run(SLOT, admission_call(make_submission(PARTITION), ROOMY))
        assert node.num_trips == 3
    records = [keys.record(one.request_id) for one in wanted]
    assert await node.call(lambda client: client.exists(*records)) == 10


async def test_other_slots_do_not_wait(node: CountingNode):
    """Calls of another partition have a trip of their own, at the same time."""
    async with asyncio.TaskGroup() as tasks:
        trips = trips_of(node, tasks)
        await asyncio.gather(
            *(
                trips.run(
                    f"m/{index}", admission_call(make_submission(Partition("m", index)), ROOMY)
                )
                for index in range(3)
            )
        )
        assert node.num_trips == 3


async def test_a_call_that_is_wrong_harms_no_other(node: CountingNode):
    """A record that is something else makes its call fail, and only that."""
    async with asyncio.TaskGroup() as tasks:
        trips = trips_of(node, tasks)
        wanted = [make_submission(PARTITION) for _ in range(4)]
        damaged = keys.record(wanted[2].request_id)
        await node.call(lambda client: client.set(damaged, "no hash"))
        answers = await asyncio.gather(
            *(trips.run(SLOT, admission_call(one, ROOMY)) for one in wanted),
            return_exceptions=True,
        )
        assert [isinstance(answer, Exception) for answer in answers] == [False, False, True, False]
        assert "WRONGTYPE" in str(answers[2])


async def test_who_leaves_stops_nobody(node: CountingNode):
    """Neither the one that goes alone nor one that waits takes the others along when its caller leaves."""
    async with asyncio.TaskGroup() as tasks:
        trips = trips_of(node, tasks)
        wanted = [make_submission(PARTITION) for _ in range(4)]
        asking = [tasks.create_task(trips.run(SLOT, admission_call(one, ROOMY))) for one in wanted]
        await asyncio.sleep(0)
        for left in (asking[0], asking[2]):
            left.cancel()
        await asyncio.wait(asking)
        for stayed in (asking[1], asking[3]):
            assert isinstance(read_admission(stayed.result()), Admitted)
        waited = keys.record(wanted[2].request_id)
        assert not await node.call(lambda client: client.exists(waited))
        assert read_admission(await trips.run(SLOT, admission_call(wanted[2], ROOMY)))


async def test_all_are_told_within_the_bound(redis_server: RedisServer):
    """While Redis does not answer, each caller hears so when its own bound is over; afterwards everything goes on."""
    with running_proxy(redis_server.port) as proxy:
        node = Node(f"redis://127.0.0.1:{proxy.port}/0")
        async with asyncio.TaskGroup() as tasks:
            trips = trips_of(node, tasks, bound_s=1.5)
            first = make_submission(PARTITION)
            await trips.run(SLOT, admission_call(first, ROOMY))
            proxy.blackhole()
            calls = [admission_call(make_submission(PARTITION), ROOMY) for _ in range(3)]
            answers = await asyncio.gather(
                *(trips.run(SLOT, call) for call in calls), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [Unavailable] * 3
            proxy.pass_through()
            async with asyncio.timeout(60):
                while True:
                    try:
                        answer = await trips.run(SLOT, admission_call(first, ROOMY))
                        break
                    except Unavailable:
                        continue
            assert isinstance(read_admission(answer), Admitted)
        await node.close()
