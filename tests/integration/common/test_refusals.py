"""A Redis that refuses writes for a while: nothing is taken for damaged, everything goes on afterwards."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from common.domain import Partition
from common.errors import Unavailable
from common.request_status import RequestStatus
from common.streams import admission, inbox, leases, ownership, reply_log
from common.streams.node import Node
from deploy.local.redis_command import find_bundled_binary, find_packaged_binary
from tests.support.redis_server import RedisServer, running_redis
from tests.support.submissions import ROOMY, make_submission

pytestmark = pytest.mark.integration
PARTITION = Partition("m", 0)
# A refusal inside a script looks different before and after Redis 7.
BINARIES = {"bundled": find_bundled_binary, "packaged": find_packaged_binary}


@pytest.fixture(params=["bundled", pytest.param("packaged", marks=pytest.mark.system)])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    binary = BINARIES[request.param]()
    assert binary is not None, f"no {request.param} Redis on this machine"
    with running_redis(binary=binary) as started:
        yield started


@pytest.fixture
async def node(server: RedisServer) -> AsyncIterator[Node]:
    node = Node(server.url)
    await inbox.create_groups(node, PARTITION)
    yield node
    await node.close()


REFUSALS = {
    "out of memory": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "a replica": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_write_is_repeated(node: Node, refusal: str):
    """Bounded calls end with UNAVAILABLE, others are made as soon as Redis takes writes again."""
    wanted = make_submission(PARTITION)
    assert isinstance(await admission.admit(node, wanted, ROOMY, bound_s=5), admission.Admitted)
    (entry,) = await inbox.read_new(node, PARTITION, "s1")
    (mine,) = await ownership.own(
        node, "s1", [(wanted.request_id, entry.priority, entry.entry_id)]
    )
    assert isinstance(mine, ownership.Owned)
    refuse, allow = REFUSALS[refusal]
    await node.call(lambda client: client.execute_command(*refuse.split()))
    with pytest.raises(Unavailable):
        await admission.admit(node, make_submission(PARTITION), ROOMY, bound_s=0.2)
    steps = [
        ownership.take_step(wanted.request_id, mine.epoch, "w", "f"),
        ownership.finish_step(wanted.request_id, mine.epoch, RequestStatus.FINISHED, b"t"),
    ]
    with pytest.raises(Unavailable):
        await ownership.run_steps(node, steps, bound_s=0.2)
    appending = asyncio.create_task(reply_log.append(node, "g", b"x", {}))
    finishing = asyncio.create_task(ownership.run_steps(node, steps))
    await node.call(lambda client: client.execute_command(*allow.split()))
    assert await finishing == [ownership.Taken(b"body", 1), ownership.Done()]
    assert await appending


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_no_lease_is_seen_absent_while_none_can_be_renewed(node: Node, refusal: str):
    """A look that finds no lease fails while Redis takes no writes; one that finds a lease tells so."""
    mine = leases.LeaderLease("a", "h:1")
    held, free = PARTITION, Partition("m", 1)
    await leases.hold_leader_lease(node, held, mine, bound_s=5)
    assert await leases.look_at_leader(node, free, bound_s=5) is None
    refuse, allow = REFUSALS[refusal]
    await node.call(lambda client: client.execute_command(*refuse.split()))
    assert await leases.look_at_leader(node, held, bound_s=5) == mine
    with pytest.raises(Unavailable):
        await leases.look_at_leader(node, free, bound_s=0.2)
    with pytest.raises(Unavailable):
        await leases.look_at_gateway(node, "g", bound_s=0.2)
    await node.call(lambda client: client.execute_command(*allow.split()))
    assert await leases.look_at_leader(node, free, bound_s=5) is None


async def test_a_full_redis_costs_nobody_a_lease(node: Node):
    """Leases are renewed without any memory; to take one needs some."""
    mine, other = leases.LeaderLease("a", "h:1"), leases.LeaderLease("b", "h:2")
    await leases.hold_leader_lease(node, PARTITION, mine, bound_s=5)
    await leases.renew_gateway(node, "g", bound_s=5)
    refuse, allow = REFUSALS["out of memory"]
    await node.call(lambda client: client.execute_command(*refuse.split()))
    assert await leases.hold_leader_lease(node, PARTITION, mine, bound_s=0.5) == mine
    assert await leases.hold_leader_lease(node, PARTITION, other, bound_s=0.5) == mine
    await leases.renew_gateway(node, "g", bound_s=0.5)
    with pytest.raises(Unavailable):
        await leases.renew_gateway(node, "new", bound_s=0.2)
    await node.call(lambda client: client.execute_command(*allow.split()))
