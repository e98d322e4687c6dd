"""The scripts that decide who may do what to a request, against a real Redis."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from common import keys
from common.domain import OrderingHeader, Partition, Priority, RequestId
from common.request_status import RequestStatus
from common.streams import admission, dead_letters, following, inbox, ownership, wake
from common.streams.node import Node
from common.wire.request import encode_header
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration
PARTITION = Partition("org/model", 0)
BOUNDS = admission.QueueBounds(max_requests=2, max_tokens=100)


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[Node]:
    node = Node(redis_server.url)
    await inbox.create_groups(node, PARTITION)
    yield node
    await node.close()


def submission(tokens: int = 10, grace_ms: int = 0) -> admission.Submission:
    header = OrderingHeader("t", Priority.NORMAL, tokens, 5)
    return admission.Submission(
        request_id=RequestId(PARTITION, RequestId.make("x", 1).unique),
        priority=Priority.NORMAL,
        tenant="t",
        prompt_tokens=tokens,
        budget_ms=60_000,
        log="g1",
        start="0-0",
        follower="g1:a",
        header=encode_header(header),
        body=b"body",
        resume_grace_ms=grace_ms,
    )


async def admit_one(node: Node, wanted: admission.Submission) -> inbox.InboxEntry:
    assert isinstance(await admission.admit(node, wanted, BOUNDS, bound_s=30), admission.Admitted)
    (entry,) = await inbox.read_new(node, PARTITION, "s1")
    return entry


async def own_one(node: Node, owner: str, entry: inbox.InboxEntry) -> ownership.Owned:
    request_id = RequestId.parse(entry.request_id or "")
    assert request_id is not None
    (owned,) = await ownership.own(node, owner, [(request_id, entry.priority, entry.entry_id)])
    assert isinstance(owned, ownership.Owned)
    return owned


async def counters(node: Node) -> dict[bytes, bytes]:
    return await node.call(lambda client: client.hgetall(keys.queued(PARTITION)))


async def test_admission_repeated_is_admission_once(node: Node):
    """A repeat after a lost answer gets the same times, and there is one entry."""
    wanted = submission()
    first = await admission.admit(node, wanted, BOUNDS, bound_s=30)
    assert await admission.admit(node, wanted, BOUNDS, bound_s=30) == first
    assert len(await inbox.read_new(node, PARTITION, "s1")) == 1


async def test_admission_is_bounded_in_requests_and_tokens(node: Node):
    """The queue never grows past its bounds; one request always fits an empty queue."""
    too_long = await admission.admit(node, submission(tokens=1000), BOUNDS, bound_s=30)
    assert isinstance(too_long, admission.Admitted)
    assert await admission.admit(node, submission(), BOUNDS, bound_s=30) == admission.Refused(
        1, 1000
    )


async def test_counters_follow_the_status(node: Node):
    """Counted while QUEUED, not while RUNNING, again after a requeue, never after the end; repeats change nothing."""
    wanted = submission()
    owned = await own_one(node, "s1", await admit_one(node, wanted))
    for _ in range(2):
        await ownership.take(node, [(wanted.request_id, owned.epoch)], "w")
    assert (await counters(node))[b"requests:normal"] == b"0"
    for _ in range(2):
        await ownership.requeue(node, wanted.request_id, owned.epoch, 1)
    assert (await counters(node))[b"tokens:normal"] == b"10"
    for _ in range(2):
        await ownership.finish(node, wanted.request_id, owned.epoch, RequestStatus.EXPIRED, b"t")
    assert set((await counters(node)).values()) == {b"0"}


async def test_a_delayed_checkpoint_changes_nothing(node: Node):
    """A copy of an older checkpoint that arrives late does not replace the newer one."""
    wanted = submission()
    owned = await own_one(node, "s1", await admit_one(node, wanted))
    for checkpoint, next_seq in ((b"new", 9), (b"old", 4)):
        stored = await ownership.store_checkpoint(
            node, wanted.request_id, owned.epoch, checkpoint, next_seq
        )
        assert stored == ownership.Done()
    record = await following.read_record(node, wanted.request_id, bound_s=30)
    assert record is not None
    assert record.checkpoint == b"new"


async def test_an_old_epoch_can_write_nothing(node: Node):
    """Once another scheduler owns a request, take, requeue, checkpoint and finish of the former are lost."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    old = await own_one(node, "s1", entry)
    new = await own_one(node, "s2", entry)
    assert new.epoch > old.epoch
    request_id, epoch = wanted.request_id, old.epoch
    assert await ownership.take(node, [(request_id, epoch)], "w") == [ownership.Lost()]
    assert await ownership.requeue(node, request_id, epoch, 0) == ownership.Lost()
    assert await ownership.store_checkpoint(node, request_id, epoch, b"c") == ownership.Lost()
    assert (
        await ownership.finish(node, request_id, epoch, RequestStatus.FINISHED, b"t")
        == ownership.Lost()
    )
    beat = await ownership.heartbeat(
        node, PARTITION, "s1", [(request_id, entry.priority, entry.entry_id, epoch)]
    )
    assert beat == [ownership.Lost()]


async def test_a_lost_answer_is_not_a_lost_race(node: Node):
    """Writing the same terminal record again succeeds; another owner's end is told apart."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    owned = await own_one(node, "s1", entry)
    for _ in range(2):
        done = await ownership.finish(
            node, wanted.request_id, owned.epoch, RequestStatus.FINISHED, b"t"
        )
        assert done == ownership.Done()
    late = await ownership.finish(
        node, wanted.request_id, owned.epoch + 1, RequestStatus.FAILED, b"u"
    )
    assert late == ownership.Ended(RequestStatus.FINISHED)


async def test_the_last_follower_takes_the_request_along(node: Node):
    """Cancelled when nobody follows any more; not while somebody else does; and the leader is woken."""
    wanted = submission()
    await admit_one(node, wanted)
    request_id = wanted.request_id
    assert await following.follow(node, request_id, "g2:b", bound_s=30) is not None
    for _ in range(2):
        assert (
            await following.leave(node, request_id, "g1:a", grace_ms=0, bound_s=30) == "followed"
        )
    assert await following.leave(node, request_id, "g2:b", grace_ms=0, bound_s=30) == "cancelling"
    assert (await wake.read_wakes(node, PARTITION, "0-0"))[1] == [str(request_id)]


async def test_the_owner_learns_through_which_gateways_clients_follow(node: Node):
    """Every gateway beside the log's own that a follower names is told with a heartbeat, until its followers left."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    owned = await own_one(node, "s1", entry)
    request_id = wanted.request_id
    place = (request_id, entry.priority, entry.entry_id, owned.epoch)

    async def beat() -> object:
        return (await ownership.heartbeat(node, PARTITION, "s1", [place]))[0]

    assert await beat() == ownership.Done()
    for follower in ("g1:b", "g2:a", "g22:a", "g2:b", "g2:b"):
        await following.follow(node, request_id, follower, bound_s=30)
    assert await beat() == ownership.FollowedFrom(("g2", "g22"))
    await following.leave(node, request_id, "g2:a", grace_ms=0, bound_s=30)
    told = await beat()
    assert isinstance(told, ownership.FollowedFrom)
    assert sorted(told.gateways) == ["g2", "g22"]
    await following.leave(node, request_id, "g2:", grace_ms=0, bound_s=30)
    assert await beat() == ownership.FollowedFrom(("g22",))
    await following.leave(node, request_id, "g22:", grace_ms=0, bound_s=30)
    assert await beat() == ownership.Done()


async def test_takeovers_without_progress_are_counted(node: Node):
    """Only of a running request; an owned answer that was lost counts nothing; a checkpoint with more starts anew."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    request_id = wanted.request_id
    assert (await own_one(node, "s1", entry)).stalls == 0
    assert (await own_one(node, "s2", entry)).stalls == 0
    for expected in (1, 2):
        owned = await own_one(node, "s1", entry)
        await ownership.take(node, [(request_id, owned.epoch)], "w")
        assert (await own_one(node, "s2", entry)).stalls == expected
        assert (await own_one(node, "s2", entry)).stalls == expected
    owned = await own_one(node, "s1", entry)
    await ownership.store_checkpoint(node, request_id, owned.epoch, b"c", 3)
    await ownership.take(node, [(request_id, owned.epoch)], "w")
    assert (await own_one(node, "s2", entry)).stalls == 1


async def test_a_dead_letter_is_written_with_the_end_and_once(node: Node):
    """The dead have a letter with body and history of attempts, in the moment of their terminal record; nobody else has."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    request_id = wanted.request_id
    first = await own_one(node, "s1", entry)
    await ownership.take(node, [(request_id, first.epoch)], "worker\twith tab")
    for _ in range(2):
        await ownership.requeue(node, request_id, first.epoch, 1, 4, "worker lost")
    await ownership.take(node, [(request_id, first.epoch)], "w2")
    second = await own_one(node, "s2", entry)
    await ownership.take(node, [(request_id, second.epoch)], "w3")
    await ownership.requeue(node, request_id, second.epoch, 2, 5, "worker lost")
    dead = (request_id, second.epoch, RequestStatus.DEAD, b"t", "POISON_REQUEST")
    for _ in range(2):
        assert await ownership.finish(node, *dead) == ownership.Done()
    (letter,) = await dead_letters.read_letters(node, PARTITION, start="+", count=10, bound_s=30)
    assert (letter.request_id, letter.reason, letter.tenant) == (
        str(request_id),
        "POISON_REQUEST",
        "t",
    )
    assert (letter.body, letter.budget_ms) == (b"", 60_000)
    assert [(a.worker_id, a.tokens, a.outcome) for a in letter.attempts] == [
        ("worker\twith tab", 4, "worker lost"),
        ("w2", 0, "scheduler lost"),
        ("w3", 5, "worker lost"),
    ]
    assert all(a.dispatched_ms <= letter.died_ms for a in letter.attempts)
    found = await dead_letters.find_letter(node, request_id, bound_s=30)
    assert found is not None
    assert found.body == b"body"
    assert await dead_letters.find_letter(node, submission().request_id, bound_s=30) is None


async def test_the_history_of_a_request_is_bounded(node: Node):
    """A request that is put back again and again keeps its last attempts only."""
    wanted = submission()
    owned = await own_one(node, "s1", await admit_one(node, wanted))
    for _ in range(ownership.ATTEMPTS_TO_REMEMBER + 9):
        await ownership.take(node, [(wanted.request_id, owned.epoch)], "w")
        await ownership.requeue(node, wanted.request_id, owned.epoch, 0, 0, "preempted")
    fields = await node.call(lambda client: client.hkeys(keys.record(wanted.request_id)))
    tries = [field for field in fields if field.startswith(b"try:")]
    assert len(tries) == ownership.ATTEMPTS_TO_REMEMBER
    assert b"try:41" in tries


async def test_abandonment_is_checked_again_after_the_grace(node: Node):
    """A follower that comes back within the grace keeps the request; without one the heartbeat cancels it."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    owned = await own_one(node, "s1", entry)
    request_id = wanted.request_id
    place = (request_id, entry.priority, entry.entry_id, owned.epoch)

    async def beat() -> object:
        return (await ownership.heartbeat(node, PARTITION, "s1", [place]))[0]

    assert await following.leave(node, request_id, "g1:", grace_ms=1, bound_s=30) == "abandoned"
    await following.follow(node, request_id, "g2:b", bound_s=30)
    assert await beat() == ownership.FollowedFrom(("g2",))
    await following.leave(node, request_id, "g2:b", grace_ms=1, bound_s=30)
    abandoned_ms = int(
        await node.call(lambda client: client.hget(keys.record(request_id), "abandon_ms"))
    )
    while await node.time_ms() <= abandoned_ms:
        pass
    assert await beat() == ownership.CancelRequested("abandoned")


async def test_entries_served_to_a_paused_scheduler_are_found(node: Node):
    """An entry that Redis handed to another consumer's blocking read is not lost."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    assert await inbox.read_foreign(node, PARTITION, "s2") == [entry]
    assert await inbox.read_foreign(node, PARTITION, "s1") == []
    await inbox.ack(node, PARTITION, [(entry.priority, entry.entry_id)])
    assert await inbox.read_pending(node, PARTITION) == []


async def test_an_entry_whose_content_is_gone_is_contained(node: Node):
    """A deleted entry that is still pending comes back without a request, to be acked."""
    wanted = submission()
    entry = await admit_one(node, wanted)
    await node.call(
        lambda client: client.xdel(keys.inbox(PARTITION, entry.priority), entry.entry_id)
    )
    assert await inbox.read_pending(node, PARTITION) == [
        inbox.InboxEntry(entry.priority, entry.entry_id, None)
    ]


async def test_a_group_that_is_gone_is_made_again(node: Node):
    """After a flush, reading goes on by itself and finds what is admitted from then on."""
    await node.call(lambda client: client.flushall())
    assert await inbox.read_new(node, PARTITION, "s1") == []
    wanted = replace(submission(), tenant="u")
    entry = await admit_one(node, wanted)
    assert entry.request_id == str(wanted.request_id)
