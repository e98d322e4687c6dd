"""Calls and reads over a master that dies, is replaced on purpose, or cannot be asked for."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from common.domain import Partition
from common.errors import Unavailable
from common.streams import admission, inbox, ownership, reply_log
from common.streams.node import Node
from tests.support.redis_sentinel import SentinelStack, running_sentinel
from tests.support.submissions import ROOMY, make_submission

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PARTITION = Partition("m", 0)


@pytest.fixture
def stack() -> Iterator[SentinelStack]:
    with running_sentinel() as started:
        yield started


@pytest.fixture
async def node(stack: SentinelStack) -> AsyncIterator[Node]:
    node = Node(stack.url)
    await inbox.create_groups(node, PARTITION)
    yield node
    await node.close()


async def port_of(node: Node) -> int:
    config = await node.call(lambda client: client.config_get("port"))
    return int(config["port"])


async def test_calls_in_flight_outlast_the_death_of_the_master(stack: SentinelStack, node: Node):
    """Calls that the dying master held get a definite answer from its successor, and readers read on there."""
    before = await reply_log.append(node, "g", b"before", {})
    await asyncio.to_thread(stack.wait_in_step)
    stack.master.pause()
    wanted = [make_submission(PARTITION) for _ in range(5)]
    reading = asyncio.create_task(_read_entries(node, len(wanted)))
    following = asyncio.create_task(_read_log(node, after=before))
    admitting = [
        asyncio.create_task(admission.admit(node, one, ROOMY, bound_s=60)) for one in wanted
    ]
    appending = asyncio.create_task(reply_log.append(node, "g", b"after", {}))
    await asyncio.to_thread(stack.fail_over)
    answers = await asyncio.gather(*admitting)
    assert all(isinstance(answer, admission.Admitted) for answer in answers)
    assert {entry.request_id for entry in await reading} == {str(s.request_id) for s in wanted}
    assert b"after" in await following
    await appending
    assert await port_of(node) == stack.replica.port
    places = [(wanted[0].request_id, wanted[0].priority, "0-1")]
    (mine,) = await ownership.own(node, "s1", places)
    assert isinstance(mine, ownership.Owned)


async def _read_entries(node: Node, count: int) -> list[inbox.InboxEntry]:
    found: list[inbox.InboxEntry] = []
    while len(found) < count:
        found += await inbox.read_new(node, PARTITION, "s1")
    return found


async def _read_log(node: Node, after: str) -> list[bytes]:
    while not (found := await reply_log.read_on(node, "g", after)):
        pass
    return [entry.payload for entry in found]


async def test_a_planned_fail_over_ends_nothing(stack: SentinelStack, node: Node):
    """While the old master is made a replica, calls and blocked reads go on, and end up at the new one."""
    reading = asyncio.create_task(_read_until(node, b"last"))
    await asyncio.to_thread(stack.hand_over)
    while await port_of(node) != stack.replica.port:
        await reply_log.append(node, "g", b"between", {})
    await reply_log.append(node, "g", b"last", {})
    await reading


async def _read_until(node: Node, payload: bytes) -> None:
    """Reads on as followers do; from the start, because a fail-over may take the newest entries along."""
    while True:
        entries = await reply_log.read_on(node, "g", "0-0")
        while entries:
            if any(entry.payload == payload for entry in entries):
                return
            entries = await reply_log.read_on(node, "g", entries[-1].id)


async def test_sentinels_that_hang_delay_nothing(stack: SentinelStack):
    """One Sentinel that answers is enough, wherever it stands in the address."""
    for sentinel in stack.sentinels[:2]:
        sentinel.pause()
    node = Node(stack.url)
    # Asked one after the other, the two would take their time-outs first: more than this bound.
    await node.time_ms(bound_s=1.9)
    assert node.num_errors == 0
    await node.close()


async def test_a_master_that_nobody_knows_is_unavailable(stack: SentinelStack):
    """A name that no Sentinel watches is told apart from nothing: the error says what was looked for."""
    node = Node(stack.url.replace("/headrace/", "/other/"))
    with pytest.raises(Unavailable):
        await node.time_ms(bound_s=0.3)
    assert node.last_error is not None
    assert "'other'" in node.last_error
    assert not await node.is_healthy()
    await node.close()
