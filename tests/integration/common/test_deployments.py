"""Everything that is stored works alike on one node, behind Sentinel and in a cluster."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from common import keys
from common.domain import Partition, Priority, RequestId
from common.request_status import RequestStatus
from common.streams import (
    admission,
    cards,
    following,
    inbox,
    leases,
    ownership,
    reply_log,
    snapshots,
    wake,
)
from common.streams.node import Node
from common.streams.scripts import script_source
from tests.support.redis_cluster import running_cluster
from tests.support.redis_sentinel import running_sentinel
from tests.support.redis_server import running_redis
from tests.support.submissions import ROOMY, make_submission

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class Deployment(Protocol):
    """Redis processes that serve at an address."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True)
class Socket:
    """One node, reached without TCP."""

    url: str


@contextmanager
def running_socket() -> Iterator[Socket]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_redis(options=["--unixsocket", f"{folder}/s"]),
    ):
        yield Socket(f"unix://{folder}/s?db=1")


RUNNERS: dict[str, Callable[[], AbstractContextManager[Deployment]]] = {
    "single": running_redis,
    "socket": running_socket,
    "sentinel": running_sentinel,
    "cluster": running_cluster,
}


@pytest.fixture(scope="module", params=list(RUNNERS))
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with RUNNERS[request.param]() as started:
        yield started


@pytest.fixture
async def node(deployment: Deployment) -> AsyncIterator[Node]:
    node = Node(deployment.url)
    await node.call(lambda client: client.flushall())
    yield node
    await node.close()
    # A machine that stalls for seconds is no failure; redirections and refusals would be.
    assert node.num_errors == 0 or "Timeout" in (node.last_error or ""), node.last_error


async def admitted(node: Node, wanted: admission.Submission) -> None:
    answer = await admission.admit(node, wanted, ROOMY, bound_s=30)
    assert isinstance(answer, admission.Admitted)


async def owned(
    node: Node, wanted: admission.Submission
) -> tuple[inbox.InboxEntry, ownership.Owned]:
    """Admitted, read and owned by `s1`."""
    await admitted(node, wanted)
    (entry,) = await inbox.read_new(node, wanted.request_id.partition, "s1")
    assert entry.request_id == str(wanted.request_id)
    (answer,) = await ownership.own(
        node, "s1", [(wanted.request_id, entry.priority, entry.entry_id)]
    )
    assert isinstance(answer, ownership.Owned)
    return entry, answer


async def test_a_request_goes_its_whole_way(node: Node):
    """Admission, reading, owning, dispatch, log, checkpoint, end and ack; nothing pending is left."""
    partition = Partition("org/model", 0)
    wanted = make_submission(partition)
    await inbox.create_groups(node, partition)
    reading = asyncio.create_task(inbox.read_new(node, partition, "s1"))
    await admitted(node, wanted)
    (entry,) = await reading
    assert await inbox.read_pending(node, partition) == [entry]
    assert await inbox.read_foreign(node, partition, "s2") == [entry]
    request_id, place = wanted.request_id, (wanted.request_id, entry.priority, entry.entry_id)
    (mine,) = await ownership.own(node, "s1", [place])
    assert isinstance(mine, ownership.Owned)
    (taken,) = await ownership.take(node, [(request_id, mine.epoch)], "w")
    assert taken == ownership.Taken(b"body", 1)
    first = await reply_log.append(node, mine.log, b"one", {str(request_id): 0})
    assert await ownership.store_checkpoint(node, request_id, mine.epoch, b"c") == ownership.Done()
    beats = await ownership.heartbeat(node, partition, "s1", [(*place, mine.epoch)])
    assert beats == [ownership.Done()]
    done = await ownership.finish(node, request_id, mine.epoch, RequestStatus.FINISHED, b"end")
    assert done == ownership.Done()
    await inbox.ack(node, partition, [(entry.priority, entry.entry_id)])
    assert await inbox.read_pending(node, partition) == []
    assert await reply_log.read_on(node, mine.log, "0-0") == [reply_log.LogEntry(first, b"one")]
    record = await following.read_record(node, request_id, bound_s=30)
    assert record is not None
    assert (record.status, record.terminal) == (RequestStatus.FINISHED, b"end")


async def test_a_blocked_reader_is_woken(node: Node):
    """Readers of a log and of wake messages wait on connections of their own and are served at once."""
    partition = Partition("m", 0)
    log_reader = asyncio.create_task(reply_log.read_on(node, "g", "0-0"))
    wake_reader = asyncio.create_task(wake.read_wakes(node, partition, "0-0"))
    appended = await reply_log.append(node, "g", b"x", {})
    order = wake.DrainOrder("w", "i", 5)
    await wake.order_drain(node, partition, order, bound_s=30)
    log_entries, (_, names) = await log_reader, await wake_reader
    assert (
        [entry.id for entry in log_entries] == [appended] == [await reply_log.last_id(node, "g")]
    )
    assert names == ["drain:w"]
    assert await wake.read_drain(node, partition, "w") == order
    await wake.clear_drain(node, partition, "w")
    assert await wake.read_drain(node, partition, "w") is None
    assert [e async for e in reply_log.read_range(node, "g", "0-0", appended)] == log_entries


async def test_requests_of_many_partitions_in_one_call(node: Node):
    """Steps for partitions on different nodes are made in one call; the answers keep the order."""
    partitions = [Partition(f"model-{i % 12}", i % 3) for i in range(36)]
    submissions = [make_submission(partition) for partition in partitions]
    places: list[tuple[RequestId, Priority, str]] = []
    for wanted in submissions:
        await inbox.create_groups(node, wanted.request_id.partition)
        await admitted(node, wanted)
        (entry,) = await inbox.read_new(node, wanted.request_id.partition, "s1")
        places.append((wanted.request_id, entry.priority, entry.entry_id))
    await node.call(lambda client: client.script_flush())
    answers = await ownership.own(node, "s1", places)
    assert {answer.epoch for answer in answers if isinstance(answer, ownership.Owned)} == {1}
    bad = [(request_id, 1 + index % 2) for index, (request_id, *_) in enumerate(places)]
    taken = await ownership.take(node, bad, "w")
    kinds = [ownership.Taken, ownership.Lost] * (len(places) // 2)
    assert [type(answer) for answer in taken] == kinds


async def test_steps_of_one_request_keep_their_order(node: Node):
    """Dispatch, requeue, dispatch, end in one round trip are applied as written, known to Redis or not."""
    partition = Partition("m", 0)
    wanted = make_submission(partition)
    await inbox.create_groups(node, partition)
    _, mine = await owned(node, wanted)
    await node.call(lambda client: client.script_flush())
    request_id, epoch = wanted.request_id, mine.epoch
    answers = await ownership.run_steps(
        node,
        [
            ownership.take_step(request_id, epoch, "w", "f"),
            ownership.requeue_step(request_id, epoch, 1),
            ownership.take_step(request_id, epoch, "w", "f"),
            ownership.finish_step(request_id, epoch, RequestStatus.FAILED, b"t"),
            ownership.checkpoint_step(request_id, epoch, b"late"),
        ],
    )
    done = ownership.Done()
    assert answers == [
        ownership.Taken(b"body", 1),
        done,
        ownership.Taken(b"body", 2),
        done,
        ownership.Ended(RequestStatus.FAILED),
    ]
    counters = await node.call(lambda client: client.hgetall(keys.queued(partition)))
    assert set(counters.values()) == {b"0"}


async def test_followers_and_cancellation(node: Node):
    """Following, leaving and cancelling reach the record and its leader."""
    partition = Partition("m", 0)
    wanted = make_submission(partition)
    await admitted(node, wanted)
    request_id = wanted.request_id
    assert await following.follow(node, request_id, "g2:b", bound_s=30) is not None
    left = await following.leave(node, request_id, "g1:", grace_ms=0, bound_s=30)
    assert left == "followed"
    outcome = await following.cancel(node, request_id, "client", bound_s=30)
    assert outcome is not None
    assert outcome.is_cancelling
    assert (await wake.read_wakes(node, partition, "0-0"))[1] == [str(request_id)]
    assert await wake.last_wake_id(node, partition) != "0-0"


async def test_leases_snapshots_and_cards(node: Node):
    """Who leads, which gateways live, what models there are and how queues stand is stored and found."""
    partition = Partition("m", 0)
    mine, other = leases.LeaderLease("a", "h:1"), leases.LeaderLease("b", "h:2")
    assert await leases.is_lease_free(node, partition, bound_s=30)
    assert await leases.hold_leader_lease(node, partition, mine, bound_s=30) == mine
    assert await leases.hold_leader_lease(node, partition, other, bound_s=30) == mine
    assert await leases.read_leader(node, partition) == mine
    seen = await leases.look_at_leader(node, partition, bound_s=30)
    assert seen is not None
    assert seen.leader == mine
    await leases.release_leader_lease(node, partition, mine, bound_s=30)
    assert await leases.is_lease_free(node, partition, bound_s=30)
    await leases.renew_gateway(node, "g", bound_s=30)
    assert await leases.look_at_gateway(node, "g", bound_s=30) is not None
    await leases.release_gateway(node, "g", bound_s=30)
    assert await leases.look_at_gateway(node, "g", bound_s=30) is None
    await snapshots.store_snapshot(node, partition, b"s")
    assert await snapshots.read_snapshot(node, partition, bound_s=30) == b"s"
    await cards.store_card(node, "m", "r", b"card")
    assert await cards.has_card(node, "m", "r")
    assert await cards.read_index(node) == {"m": "r"}
    assert await cards.read_card(node, "m", "r") == b"card"
    assert await cards.raise_partition_count(node, "m", 3) == 3
    assert await cards.raise_partition_count(node, "m", 2) == 3
    assert await cards.partition_count(node, "m") == 3


async def test_clock_health_and_policy(node: Node):
    """Clock and health of a key's node, or of them all; the policy is the worst of all nodes'."""
    key = keys.lead(Partition("m", 0))
    assert abs(await node.time_ms(key) - await node.time_ms()) < 60_000
    assert await node.is_healthy(key)
    assert await node.is_healthy()
    assert await node.eviction_policy() == "noeviction"


async def test_a_newer_process_meets_an_older_one_s_scripts(node: Node):
    """Where Redis knows some scripts only, the first batch of a process is applied as written all the same."""
    partition = Partition("m", 0)
    wanted = make_submission(partition)
    await inbox.create_groups(node, partition)
    _, mine = await owned(node, wanted)
    await node.call(lambda client: client.script_flush())
    newer = Node(node.url)
    await newer.call(lambda client: client.script_load(script_source("finish")))
    answers = await ownership.run_steps(
        newer,
        [
            ownership.take_step(wanted.request_id, mine.epoch, "w", "f"),
            ownership.finish_step(wanted.request_id, mine.epoch, RequestStatus.FINISHED, b"t"),
        ],
    )
    await newer.close()
    assert answers == [ownership.Taken(b"body", 1), ownership.Done()]
