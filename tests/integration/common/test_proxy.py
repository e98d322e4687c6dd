"""Lost answers, cut and silent connections: every write is safe to repeat, and nothing hangs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from common import keys
from common.domain import FinishReason, Partition
from common.errors import Unavailable
from common.log_fold import LogFold
from common.records import Fact, FinishRecord, LogRecord, TokensRecord
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
from common.streams.scripts import script_digest
from common.wire.records import decode_log_batch, encode_log_batch
from tests.support.redis_server import RedisServer
from tests.support.submissions import ROOMY, make_submission
from tests.support.tcp_proxy import TcpProxy, running_proxy

pytestmark = pytest.mark.integration
PARTITION = Partition("m", 0)
T = TypeVar("T")
Write = Callable[[str, Awaitable[T]], Awaitable[T]]
# What a repeated call may change: times, positions, and the epoch, which its owner learns.
VOLATILE = {
    b"epoch",
    b"term_epoch",
    b"entry",
    b"admitted_ms",
    b"deadline_ms",
    b"first_dispatch_ms",
    b"dispatch_ms",
}


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[TcpProxy]:
    with running_proxy(redis_server.port) as started:
        yield started


@pytest.fixture
async def node(proxy: TcpProxy) -> AsyncIterator[Node]:
    node = Node(f"redis://127.0.0.1:{proxy.port}/0")
    yield node
    await node.close()


async def test_every_write_under_lost_answers(
    redis_server: RedisServer, proxy: TcpProxy, node: Node
):
    """Each write is applied three times because two answers are lost: Redis and the callers end up as if once."""
    requests = [make_submission(PARTITION) for _ in range(3)]

    async def plainly(command: str, write: Awaitable[T]) -> T:
        return await write

    async def with_losses(command: str, write: Awaitable[T]) -> T:
        word = script_digest(command) if command.islower() else command
        before = proxy.num_dropped
        proxy.drop_replies(word.encode(), count=2)
        answer = await write
        assert proxy.num_dropped == before + 2, command
        return answer

    direct = Node(redis_server.url)
    expected = await _whole_way(direct, requests, plainly)
    state = await _state(direct)
    await direct.call(lambda client: client.flushall())
    assert await _whole_way(node, requests, with_losses) == expected
    assert await _state(direct) == state
    await direct.close()


async def _whole_way(
    node: Node, requests: list[admission.Submission], write: Write[Any]
) -> list[Any]:
    """Every write of every store; what the callers learned, without times and epochs."""
    finished, cancelled, abandoned = requests
    learned: list[Any] = []
    await write("XGROUP", inbox.create_groups(node, PARTITION))
    for wanted in requests:
        await write("admit", admission.admit(node, wanted, ROOMY, bound_s=30))
    entries = await inbox.read_new(node, PARTITION, "s1")
    request_id, entry = finished.request_id, entries[0]
    place = (request_id, entry.priority, entry.entry_id)
    (mine,) = await write("own", ownership.own(node, "s1", [place]))
    learned.append((len(entries), mine.status_before, mine.attempts, mine.log))
    epoch = mine.epoch
    learned.append(await write("take", ownership.take(node, [(request_id, epoch)], "w")))
    learned.append(await write("requeue", ownership.requeue(node, request_id, epoch, 1)))
    learned.append(await write("take", ownership.take(node, [(request_id, epoch)], "w")))
    for fact in FACTS:
        batch = encode_log_batch([LogRecord(str(request_id), epoch, fact)])
        await write("append", reply_log.append(node, mine.log, batch, {"r": 0}))
    checkpoint = ownership.store_checkpoint(node, request_id, epoch, b"c")
    learned.append(await write("checkpoint", checkpoint))
    beat = ownership.heartbeat(node, PARTITION, "s1", [(*place, epoch)])
    learned.append(await write("heartbeat", beat))
    finish = ownership.finish(node, request_id, epoch, RequestStatus.FINISHED, b"end")
    learned.append(await write("finish", finish))
    await write("ack", inbox.ack(node, PARTITION, [(entry.priority, entry.entry_id)]))
    learned += await _followers(node, cancelled, abandoned, write)
    learned += await _others(node, write)
    return learned


FACTS: list[Fact] = [
    TokensRecord(0, 0, (7, 8), "ab", (1, 1)),
    TokensRecord(2, 0, (9,), "c", (1,)),
    FinishRecord(3, 0, FinishReason.STOP),
]


async def _followers(
    node: Node,
    cancelled: admission.Submission,
    abandoned: admission.Submission,
    write: Write[Any],
) -> list[Any]:
    follow = following.follow(node, cancelled.request_id, "g2:b", bound_s=30)
    record = await write("follow", follow)
    cancel = following.cancel(node, cancelled.request_id, "client", bound_s=30)
    leave = following.leave(node, abandoned.request_id, "g1:", grace_ms=0, bound_s=30)
    return [record.status, await write("cancel", cancel), await write("leave", leave)]


async def _others(node: Node, write: Write[Any]) -> list[Any]:
    lease = leases.LeaderLease("a", "h:1")
    hold = leases.hold_leader_lease(node, PARTITION, lease, bound_s=30)
    release = leases.release_leader_lease(node, PARTITION, lease, bound_s=30)
    learned = [await write("renew_lease", hold), await write("release_lease", release)]
    await write("renew_lease", leases.renew_gateway(node, "g", bound_s=30))
    await write("DEL", leases.release_gateway(node, "g", bound_s=30))
    await write("SET", cards.store_card(node, "m", "r", b"card"))
    learned.append(await write("raise_partitions", cards.raise_partition_count(node, "m", 2)))
    await write("SET", snapshots.store_snapshot(node, PARTITION, b"s"))
    await write(
        "XADD", wake.order_drain(node, PARTITION, wake.DrainOrder("w", "i", 5), bound_s=30)
    )
    await write("DEL", wake.clear_drain(node, PARTITION, "w"))
    learned.append(await write("sweep_consumers", inbox.read_foreign(node, PARTITION, "s1")))
    return learned


async def _state(node: Node) -> dict[bytes, Any]:
    """What Redis holds, as its readers understand it."""

    async def content(key: bytes) -> Any:
        name = key.decode()
        if name.endswith(":replies"):
            return await _facts(node, "g1")
        if name.endswith(":wake"):
            return set((await wake.read_wakes(node, PARTITION, "0-0"))[1])
        match await node.call(lambda client: client.type(key)):
            case b"hash":
                fields = await node.call(lambda client: client.hgetall(key))
                return {field: fields[field] for field in fields.keys() - VOLATILE}
            case b"stream":
                entries = await node.call(lambda client: client.xrange(key))
                return [fields[b"id"] for _, fields in entries]
            case b"zset":
                return await node.call(lambda client: client.zrange(key, 0, -1))
            case _:
                return await node.call(lambda client: client.get(key))

    found = await node.call(lambda client: client.keys())
    pending = await inbox.read_pending(node, PARTITION)
    return {key: await content(key) for key in found} | {b"pending": len(pending)}


async def _facts(node: Node, log: str) -> list[Fact]:
    fold = LogFold()
    last = await reply_log.last_id(node, log)
    entries = [entry async for entry in reply_log.read_range(node, log, "0-0", last)]
    records = [record for entry in entries for record in decode_log_batch(entry.payload)]
    return [fact for record in records if (fact := fold.apply(record)) is not None]


async def test_entries_of_a_lost_read_are_found(proxy: TcpProxy, node: Node):
    """An answer to a blocking read that got lost leaves its entries pending, and shows as an error."""
    await inbox.create_groups(node, PARTITION)
    wanted = make_submission(PARTITION)
    await admission.admit(node, wanted, ROOMY, bound_s=30)
    proxy.drop_replies(b"XREADGROUP", count=1)
    assert await inbox.read_new(node, PARTITION, "s1") == []
    assert node.num_errors == 1
    (found,) = await inbox.read_pending(node, PARTITION)
    assert found.request_id == str(wanted.request_id)


async def test_a_silent_connection_ends_nothing(proxy: TcpProxy, node: Node):
    """Bounded calls give up in time while nothing comes back; others are answered as soon as the path is open."""
    await reply_log.append(node, "g", b"one", {})
    proxy.blackhole()
    with pytest.raises(Unavailable):
        await node.time_ms(bound_s=0.2)
    waiting = asyncio.create_task(reply_log.append(node, "g", b"two", {}))
    with pytest.raises(Unavailable):
        await node.time_ms(bound_s=0.2)
    proxy.pass_through()
    await waiting
    entries = await reply_log.read_on(node, "g", "0-0")
    assert [entry.payload for entry in entries] == [b"one", b"two"]


async def test_a_cut_reader_reads_on(proxy: TcpProxy, node: Node):
    """A blocked read whose connection is reset comes back empty, and the next one finds what was appended."""
    reading = asyncio.create_task(reply_log.read_on(node, "g", "0-0"))
    await node.call(_somebody_waits)
    assert proxy.cut() > 0
    assert await reading == []
    appended = await reply_log.append(node, "g", b"x", {})
    (entry,) = await reply_log.read_on(node, "g", "0-0")
    assert entry.id == appended


async def _somebody_waits(client: Any) -> None:
    while (await client.info("clients"))["blocked_clients"] == 0:
        pass


async def test_a_slow_path_alters_nothing(proxy: TcpProxy, node: Node):
    """Answers that take long reach the calls they belong to."""
    proxy.delay(0.05)
    names = [keys.gateway_alive(f"g{number}") for number in range(20)]

    async def echo(name: str) -> bytes:
        await node.call(lambda client: client.set(name, name))
        return await node.call(lambda client: client.get(name))

    assert await asyncio.gather(*map(echo, names)) == [name.encode() for name in names]
