"""Calls and reads over a cluster whose nodes die and whose slots move."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from common import keys
from common.domain import Partition
from common.errors import Unavailable
from common.streams import admission, inbox, leases, reply_log
from common.streams.node import Node
from tests.support.redis_cluster import ClusterServer, RedisCluster, node_client, running_cluster
from tests.support.submissions import ROOMY, make_submission

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with running_cluster() as started:
        yield started


@pytest.fixture
async def node(cluster: RedisCluster) -> AsyncIterator[Node]:
    node = Node(cluster.url)
    yield node
    await node.close()


def partition_at(cluster: RedisCluster, server: ClusterServer) -> Partition:
    """A partition that ``server`` serves."""
    candidates = (Partition(f"m{number}", 0) for number in range(100))
    return next(p for p in candidates if cluster.owner(keys.lead(p)) is server)


async def test_a_dead_node_stalls_only_its_own_partitions(cluster: RedisCluster, node: Node):
    """While one node is away the others serve; its own calls and readers wait until it is back."""
    dead, alive, _ = cluster.servers
    theirs, ours = partition_at(cluster, dead), partition_at(cluster, alive)
    for partition in (theirs, ours):
        await inbox.create_groups(node, partition)
    dead.kill()
    waiting = make_submission(theirs)
    admitting = asyncio.create_task(admission.admit(node, waiting, ROOMY, bound_s=60))
    reading = asyncio.create_task(_read_one(node, theirs))
    with pytest.raises(Unavailable):
        await node.time_ms(keys.lead(theirs), bound_s=0.3)
    assert not await node.is_healthy()
    assert await node.is_healthy(keys.lead(ours))
    for _ in range(20):
        answer = await admission.admit(node, make_submission(ours), ROOMY, bound_s=30)
        assert isinstance(answer, admission.Admitted)
    assert not admitting.done()
    await asyncio.to_thread(dead.restart)
    assert isinstance(await admitting, admission.Admitted)
    assert (await reading).request_id == str(waiting.request_id)


async def _read_one(node: Node, partition: Partition) -> inbox.InboxEntry:
    while not (found := await inbox.read_new(node, partition, "s1")):
        pass
    return found[0]


async def test_a_slot_on_the_move(cluster: RedisCluster, node: Node):
    """Half-way, new keys are made where the slot goes; what needs old and new ones waits; then all goes on there."""
    source, target, _ = cluster.servers
    partition = partition_at(cluster, source)
    await inbox.create_groups(node, partition)
    first, second = make_submission(partition), make_submission(partition)
    await admission.admit(node, first, ROOMY, bound_s=30)
    # Several idle connections to each node: a redirection must hold on the one that it was asked for.
    await asyncio.gather(
        *(node.time_ms(keys.lead(p)) for p in _everywhere(cluster) for _ in "1234")
    )
    assert cluster.begin_move(keys.lead(partition), target) is source
    mine = leases.LeaderLease("a", "h:1")
    assert await leases.hold_leader_lease(node, partition, mine, bound_s=30) == mine
    with node_client(target) as client:
        assert keys.lead(partition).encode() in client.scan()[1]
    with pytest.raises(Unavailable):
        await admission.admit(node, second, ROOMY, bound_s=0.5)
    admitting = asyncio.create_task(admission.admit(node, second, ROOMY, bound_s=60))
    await asyncio.to_thread(cluster.end_move, keys.lead(partition), source, target)
    assert isinstance(await admitting, admission.Admitted)
    found = await inbox.read_new(node, partition, "s1")
    assert {e.request_id for e in found} == {str(first.request_id), str(second.request_id)}
    assert await inbox.read_pending(node, partition) == found
    await inbox.ack(node, partition, [(entry.priority, entry.entry_id) for entry in found])
    assert await inbox.read_pending(node, partition) == []
    assert await leases.read_leader(node, partition) == mine


def _everywhere(cluster: RedisCluster) -> list[Partition]:
    return [partition_at(cluster, server) for server in cluster.servers]


async def test_transactions_and_batches_follow_a_moved_slot(cluster: RedisCluster, node: Node):
    """A client that knows the old owner only is sent on, whatever it sends first."""
    source, target, _ = cluster.servers
    partition = partition_at(cluster, source)
    await inbox.create_groups(node, partition)
    for _ in range(3):
        await admission.admit(node, make_submission(partition), ROOMY, bound_s=30)
    found = await inbox.read_new(node, partition, "s1")
    others = [Node(cluster.url) for _ in range(2)]
    for other in others:
        await other.time_ms(keys.lead(partition))
    await asyncio.to_thread(_move, cluster, partition, target)
    assert await inbox.read_pending(others[0], partition) == found
    await inbox.ack(others[1], partition, [(entry.priority, entry.entry_id) for entry in found])
    assert await inbox.read_pending(node, partition) == []
    assert [other.num_errors for other in others] == [0, 0]
    for other in others:
        await other.close()


def _move(cluster: RedisCluster, partition: Partition, target: ClusterServer) -> None:
    source = cluster.begin_move(keys.lead(partition), target)
    cluster.end_move(keys.lead(partition), source, target)


async def test_one_known_node_is_enough(cluster: RedisCluster):
    """The others are learned from it; an address that nobody serves beside it does no harm."""
    node = Node(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.servers[2].port}")
    ids = await asyncio.gather(*(reply_log.append(node, f"g{i}", b"x", {}) for i in range(12)))
    assert all(ids)
    await node.close()
