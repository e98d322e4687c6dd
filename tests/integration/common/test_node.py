"""Calls over a Redis that stops, stalls and comes back."""

import asyncio
import contextlib
import socket
import struct
import threading

import pytest
import redis.exceptions
import uvloop

from common.domain import Partition
from common.errors import Unavailable
from common.streams import leases, reply_log
from common.streams.node import Node
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration


async def test_a_bounded_call_fails_fast_with_advice(redis_server: RedisServer):
    """While Redis is down a producer gets UNAVAILABLE with a retry delay, within its bound."""
    node = Node(redis_server.url)
    redis_server.kill()
    with pytest.raises(Unavailable) as caught:
        await node.time_ms(bound_s=0.3)
    assert caught.value.reason == "QUEUE_UNAVAILABLE"
    assert caught.value.retry_after_s is not None
    await node.close()


async def test_an_unbounded_call_outlasts_a_restart(redis_server: RedisServer):
    """A consumer's call waits until Redis is back, scripts included (a restart forgets them)."""
    node = Node(redis_server.url)
    first = await reply_log.append(node, "g", b"one", {})
    redis_server.kill()
    waiting = asyncio.create_task(reply_log.append(node, "g", b"two", {}))
    await asyncio.to_thread(redis_server.restart)
    second = await waiting
    entries = [entry async for entry in reply_log.read_range(node, "g", "0-0", second)]
    assert [entry.payload for entry in entries] == [b"one", b"two"]
    assert reply_log.id_key(first) < reply_log.id_key(second)
    await node.close()


async def test_a_log_is_trimmed_behind_its_oldest_mark_only(redis_server: RedisServer):
    """Entries behind every mark go with later appends; entries at or before a mark's position stay."""
    node = Node(redis_server.url)
    first = await reply_log.append(node, "g", b"x", {})
    await reply_log.append(node, "g", b"", {"r": reply_log.id_ms(first)})
    for _ in range(300):
        last = await reply_log.append(node, "g", b"x", {})
    assert await node.call(lambda client: client.xlen("hr:{gw:g}:replies")) == 301
    await reply_log.append(node, "g", b"", {"r": reply_log.id_ms(last)})
    await reply_log.append(node, "g", b"x", {})
    assert await node.call(lambda client: client.xlen("hr:{gw:g}:replies")) < 301
    await node.close()


async def test_a_stale_mark_keeps_no_log_for_ever(redis_server: RedisServer):
    """A mark before the longest life begins with its append, unless it stands already; one that stays there goes."""
    node, marks = Node(redis_server.url), "hr:{gw:g}:marks"
    await node.call(lambda client: client.zadd(marks, {"lost": 7}))
    first = await reply_log.append(node, "g", b"x", {"r": 0})
    scores = dict(await node.call(lambda client: client.zrange(marks, 0, -1, withscores=True)))
    assert scores.keys() == {b"r"}
    assert 0 <= reply_log.id_ms(first) - scores[b"r"] < 60_000, (
        "in front of its append, by a little"
    )
    await reply_log.append(node, "g", b"x", {"r": 0})
    assert (
        dict(await node.call(lambda client: client.zrange(marks, 0, -1, withscores=True)))
        == scores
    )
    await node.close()


async def test_one_leader_at_a_time(redis_server: RedisServer):
    """Whoever asks second learns who holds the lease, and gets it once it is given back."""
    node, partition = Node(redis_server.url), Partition("m", 0)
    mine, other = leases.LeaderLease("a", "h:1"), leases.LeaderLease("b", "h:2")
    assert await leases.hold_leader_lease(node, partition, mine, bound_s=30) == mine
    assert await leases.hold_leader_lease(node, partition, other, bound_s=30) == mine
    await leases.release_leader_lease(node, partition, other, bound_s=30)
    assert await leases.read_leader(node, partition) == mine
    await leases.release_leader_lease(node, partition, mine, bound_s=30)
    assert await leases.hold_leader_lease(node, partition, other, bound_s=30) == other
    await node.close()


async def test_no_cancellation_is_lost(redis_server: RedisServer):
    """The client library loses one that comes with an error of its own: the call ends all the same, unrepeated."""
    begun = asyncio.Event()

    async def operation(client: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise redis.exceptions.OutOfMemoryError("in the same moment") from None

    node = Node(redis_server.url)
    for call in (node.call(operation), node.read(operation)):
        begun.clear()
        task = asyncio.create_task(call)
        await begun.wait()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
    await node.close()


class _Resetting:
    """A port whose connections are reset as soon as they stand, as those of a proxy in front of nothing are."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._reset_all, daemon=True)

    def __enter__(self) -> "_Resetting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _reset_all(self) -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()


def test_a_reset_at_any_moment_is_transient():
    """Under the services' own event loop a reset may come between connecting and writing: UNAVAILABLE all the same."""

    async def call_often(port: int) -> None:
        for _ in range(150):
            node = Node(f"redis://127.0.0.1:{port}/0")
            with pytest.raises(Unavailable):
                await node.call(lambda client: client.ping(), bound_s=0.01)
            await node.close()

    with _Resetting() as resetting:
        uvloop.run(call_often(resetting.port))
