"""A Redis that refuses writes for a while: nothing is taken for damaged, everything goes on afterwards."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from common.domain import Partition, Priority, RequestId
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.request_status import RequestStatus
from common.streams import admission, following, inbox, leases, ownership, reply_log
from common.streams.node import Node, RedisClient
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


FULL, ALLOWED_AGAIN = REFUSALS["out of memory"]


async def tell(node: Node, command: str) -> None:
    await node.call(lambda client: client.execute_command(*command.split()))


async def owned(node: Node) -> tuple[RequestId, ownership.Owned, str]:
    """A request that was admitted and is owned by ``s1``, and its entry."""
    wanted = make_submission(PARTITION)
    assert isinstance(await admission.admit(node, wanted, ROOMY, bound_s=20), admission.Admitted)
    (entry,) = await inbox.read_new(node, PARTITION, "s1")
    place = (wanted.request_id, entry.priority, entry.entry_id)
    (mine,) = await ownership.own(node, "s1", [place])
    assert isinstance(mine, ownership.Owned)
    return wanted.request_id, mine, entry.entry_id


async def test_a_refused_write_is_repeated(node: Node):
    """Bounded calls end with UNAVAILABLE, others are made as soon as Redis takes writes again."""
    request_id, mine, _ = await owned(node)
    refuse, allow = REFUSALS["a replica"]
    await tell(node, refuse)
    with pytest.raises(Unavailable):
        await admission.admit(node, make_submission(PARTITION), ROOMY, bound_s=0.2)
    steps = [
        ownership.take_step(request_id, mine.epoch, "w", "f"),
        ownership.finish_step(request_id, mine.epoch, RequestStatus.FINISHED, b"t"),
    ]
    with pytest.raises(Unavailable):
        await ownership.run_steps(node, steps, bound_s=0.2)
    appending = asyncio.create_task(reply_log.append(node, "g", b"x", {}))
    finishing = asyncio.create_task(ownership.run_steps(node, steps))
    await tell(node, allow)
    assert await finishing == [ownership.Taken(b"body", 1), ownership.Done()]
    assert await appending


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("number", [1, 2])
async def test_a_refusal_is_known_in_every_form(node: Node, refusal: str, number: int):
    """From a command or out of a script, alone or in a pipeline: all of them pass."""
    refuse, allow = REFUSALS[refusal]
    await tell(node, refuse)

    async def by_scripts(client: RedisClient) -> None:
        pipeline = client.pipeline(transaction=False)
        for _ in range(number):
            pipeline.eval("return redis.call('SET', KEYS[1], 1)", 1, "k")
        await pipeline.execute()

    async def by_commands(client: RedisClient) -> None:
        pipeline = client.pipeline(transaction=False)
        for _ in range(number):
            pipeline.set("k", "v")
        await pipeline.execute()

    for operation in (by_scripts, by_commands):
        with pytest.raises(Unavailable):
            await node.call(operation, bound_s=0.2)
    await tell(node, allow)


async def test_a_full_redis_takes_nothing_new_and_lets_the_rest_go_on(node: Node):
    """What was accepted is owned, run, logged, followed, cancelled, finished and acked; leases are taken and kept."""
    request_id, mine, entry_id = await owned(node)
    place = (request_id, Priority.NORMAL, entry_id)
    await tell(node, FULL)
    with pytest.raises(Unavailable):
        await admission.admit(node, make_submission(PARTITION), ROOMY, bound_s=0.2)
    async with asyncio.timeout(60):
        await inbox.create_groups(node, PARTITION)
        (mine,) = await ownership.own(node, "s2", [place])
        assert isinstance(mine, ownership.Owned)
        take = ownership.take_step(request_id, mine.epoch, "w", "f")
        requeue = ownership.requeue_step(request_id, mine.epoch, 0, 0, "left")
        await ownership.run_steps(node, [take, requeue, take])
        assert await reply_log.append(node, "g", b"x", {"r": 0})
        await ownership.store_checkpoint(node, request_id, mine.epoch, b"c", 1)
        assert await following.follow(node, request_id, "g2:b", bound_s=20)
        assert await following.leave(node, request_id, "g2:", grace_ms=0, bound_s=20) == "followed"
        cancelled = await following.cancel(node, request_id, "client", bound_s=20)
        assert cancelled is not None
        assert cancelled.is_cancelling
        (beaten,) = await ownership.heartbeat(node, PARTITION, "s2", [(*place, mine.epoch)])
        assert beaten == ownership.CancelRequested("client")
        end = ownership.finish_step(request_id, mine.epoch, RequestStatus.CANCELLED, b"t")
        assert await ownership.run_steps(node, [end]) == [ownership.Done()]
        await inbox.ack(node, PARTITION, [(Priority.NORMAL, entry_id)])
        one, other = leases.LeaderLease("a", "h:1"), leases.LeaderLease("b", "h:2")
        for lease in (one, other):
            assert await leases.look_at_leader(node, PARTITION, bound_s=20) is None
            assert await leases.hold_leader_lease(node, PARTITION, lease, bound_s=20) == lease
            assert await leases.hold_leader_lease(node, PARTITION, lease, bound_s=20) == lease
            await leases.release_leader_lease(node, PARTITION, lease, bound_s=20)
        await leases.renew_gateway(node, "g", bound_s=20)
        assert await leases.look_at_gateway(node, "g", bound_s=20) is not None
    await tell(node, ALLOWED_AGAIN)


async def test_no_lease_is_seen_absent_while_none_can_be_renewed(node: Node):
    """A look that finds no lease fails while Redis takes no writes; one that finds a lease tells so."""
    mine = leases.LeaderLease("a", "h:1")
    held, free = PARTITION, Partition("m", 1)
    await leases.hold_leader_lease(node, held, mine, bound_s=20)
    assert await leases.look_at_leader(node, free, bound_s=20) is None
    refuse, allow = REFUSALS["a replica"]
    await tell(node, refuse)
    seen = await leases.look_at_leader(node, held, bound_s=20)
    assert seen is not None
    assert seen.leader == mine
    assert 0 <= seen.renewed_ago_s < LENGTHS.leader_lease_s
    with pytest.raises(Unavailable):
        await leases.look_at_leader(node, free, bound_s=0.2)
    with pytest.raises(Unavailable):
        await leases.look_at_gateway(node, "g", bound_s=0.2)
    await tell(node, allow)
    assert await leases.look_at_leader(node, free, bound_s=20) is None
