"""Admission counters say what waits, whatever was lost."""

from collections.abc import AsyncIterator

import pytest

from common import keys
from common.domain import Partition, Priority
from common.streams import admission, inbox, ownership
from common.streams.node import Node
from common.streams.recount import recount
from tests.support.redis_server import RedisServer
from tests.support.submissions import ROOMY, make_submission

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITION = Partition("m", 0)


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[Node]:
    node = Node(redis_server.url)
    yield node
    await node.close()


async def counters(node: Node) -> dict[str, int]:
    """Those that are not 0."""
    found = await node.call(lambda client: client.hgetall(keys.queued(PARTITION)))
    return {name.decode(): int(count) for name, count in found.items() if int(count)}


async def admit(node: Node, **changes) -> admission.Submission:
    submission = make_submission(PARTITION, **changes)
    await admission.admit(node, submission, ROOMY, bound_s=30)
    return submission


async def test_right_counters_stay_as_they_are(node: Node):
    """Waiting requests count in their class; one that runs does not, though its entry stands in the inbox."""
    await inbox.create_groups(node, PARTITION)
    await admit(node, tokens=10)
    await admit(node, tokens=7, priority=Priority.HIGH)
    running = await admit(node, tokens=100)
    (entry,) = [
        one
        for one in await inbox.read_new(node, PARTITION, "s")
        if one.request_id == str(running.request_id)
    ]
    steps = [
        ownership.own_step("s", running.request_id, Priority.NORMAL, entry.entry_id),
        ownership.take_step(running.request_id, 1, "w", "f"),
    ]
    await ownership.run_steps(node, steps, bound_s=30)
    before = await counters(node)
    assert before == {
        "requests:normal": 1,
        "tokens:normal": 10,
        "requests:high": 1,
        "tokens:high": 7,
    }
    assert await recount(node, PARTITION, bound_s=30) == 0
    assert await counters(node) == before


async def test_what_was_lost_is_not_counted(node: Node):
    """Records that vanished give their places back, and counters that vanished come back."""
    kept, lost = await admit(node, tokens=10), await admit(node, tokens=5)
    await node.call(lambda client: client.delete(keys.record(lost.request_id)))
    assert await recount(node, PARTITION, bound_s=30) == 2
    assert await counters(node) == {"requests:normal": 1, "tokens:normal": 10}
    await node.call(lambda client: client.delete(keys.queued(PARTITION)))
    assert await recount(node, PARTITION, bound_s=30) == 2
    assert await counters(node) == {"requests:normal": 1, "tokens:normal": 10}
    assert kept.prompt_tokens == 10


async def test_a_queue_that_is_too_long_is_left_for_another_time(node: Node):
    """Redis is not kept from everybody else for as long as a long queue takes."""
    for _ in range(3):
        await admit(node)
    await node.call(lambda client: client.delete(keys.queued(PARTITION)))
    assert await recount(node, PARTITION, bound_s=30, max_entries=2) == 0
    assert await recount(node, PARTITION, bound_s=30, max_entries=3) == 2
