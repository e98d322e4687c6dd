"""The log writer against a node that answers late, never, or twice."""

import asyncio
from collections.abc import Collection

import pytest

from common.domain import FinishReason
from common.errors import Unavailable
from common.records import FinishRecord, LogRecord, TokensRecord
from common.streams.node import queue_unavailable
from common.streams.vault import Vault
from common.wire.records import decode_log_batch
from scheduler.lease import HeldLease
from scheduler.log_writer import Appended, LogWriter, TailLost, merged
from tests.support.fake_clock import FakeClock


class FakeNode:
    """Applies appends when the test says so; the first ``num_lost`` answers never arrive.

    ``torn``: the appends, counted from 1, before which the log lost its tail.
    """

    def __init__(self, num_lost: int = 0, torn: Collection[int] = ()) -> None:
        self.torn = torn
        self.num_calls = 0
        self.is_taught = True
        self.vault = Vault()
        self.payloads: list[bytes] = []
        self.marks: list[tuple] = []
        self.num_lost = num_lost
        self.gate = asyncio.Event()
        self.in_flight = 0

    async def call(self, operation, *, bound_s=None):
        self.in_flight += 1
        assert self.in_flight == 1, "two appends in flight"
        await self.gate.wait()
        answer = await operation(self)
        self.in_flight -= 1
        if self.num_lost:
            self.num_lost -= 1
            raise queue_unavailable() from Unavailable("lost", reason="QUEUE_UNAVAILABLE")
        return answer

    async def execute_command(
        self, _command, _digest, _num_keys, _log, _marks, payload, _ttl, last, *pairs
    ):
        self.num_calls += 1
        if self.num_calls in self.torn:
            assert last == f"{len(self.payloads)}-0"
            return b"lost"
        self.payloads.append(payload)
        self.marks.append(pairs)
        return f"{len(self.payloads)}-0".encode()


class Heard:
    """What was confirmed."""

    def __init__(self) -> None:
        self.appends: asyncio.Queue[Appended] = asyncio.Queue()
        self.losses: asyncio.Queue[TailLost] = asyncio.Queue()

    def of(self, message: Appended | TailLost) -> None:
        if isinstance(message, TailLost):
            self.losses.put_nowait(message)
        else:
            self.appends.put_nowait(message)


@pytest.fixture
async def lease() -> HeldLease:
    clock = FakeClock()
    lease = HeldLease(clock)
    lease.renewed(clock())
    return lease


def tokens(request_id: str, seq: int, *ids: int, epoch: int = 1) -> LogRecord:
    return LogRecord(request_id, epoch, TokensRecord(seq, 0, ids, "x" * len(ids), (1,) * len(ids)))


def finish(request_id: str, seq: int) -> LogRecord:
    return LogRecord(request_id, 1, FinishRecord(seq, 0, FinishReason.STOP))


async def run(writer: LogWriter, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
    return tasks.create_task(writer.run())


async def test_one_append_in_flight_and_the_rest_merged(lease: HeldLease):
    """What arrives while an append is under way goes into the next one, all of it."""
    node, heard = FakeNode(), Heard()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    async with asyncio.TaskGroup() as tasks:
        task = await run(writer, tasks)
        writer.add([tokens("a", 0, 1)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.add([tokens("a", 1, 2), tokens("b", 0, 9)])
        writer.add([tokens("a", 2, 3)])
        assert node.in_flight == 1
        node.gate.set()
        first, second = await heard.appends.get(), await heard.appends.get()
        task.cancel()
    assert [record.fact.seq for record in first.records] == [0]
    assert [(r.request_id, r.fact.seq) for r in second.records] == [("a", 1), ("b", 0), ("a", 2)]
    stored = decode_log_batch(node.payloads[1])
    assert [(r.request_id, r.fact.token_ids) for r in stored] == [("a", (2, 3)), ("b", (9,))]


async def test_an_append_of_unknown_outcome_is_repeated_bit_for_bit(lease: HeldLease):
    """A lost answer leads to the same bytes and marks again, and to one confirmation."""
    node, heard = FakeNode(num_lost=2), Heard()
    node.gate.set()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    async with asyncio.TaskGroup() as tasks:
        task = await run(writer, tasks)
        writer.mark("a", 5)
        writer.add([tokens("a", 0, 1)])
        appended = await heard.appends.get()
        task.cancel()
    assert len(node.payloads) == 3
    assert len(set(node.payloads)) == 1
    assert node.marks == [("a", 5)] * 3
    assert appended.log_id == "3-0"
    assert heard.appends.empty()


async def test_removing_a_mark_needs_no_record(lease: HeldLease):
    """A removed mark is worth an append without a payload; a moved one waits for the next record."""
    node, heard = FakeNode(), Heard()
    node.gate.set()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    async with asyncio.TaskGroup() as tasks:
        task = await run(writer, tasks)
        writer.mark("b", 7)
        await asyncio.sleep(0)
        assert node.payloads == []
        writer.unmark("a")
        appended = await heard.appends.get()
        task.cancel()
    assert (node.payloads, appended.unmarked) == ([b""], ["a"])


async def test_nothing_is_written_without_the_lease():
    """A scheduler whose lease has run out writes nothing until it is renewed."""
    clock = FakeClock()
    lease = HeldLease(clock)
    lease.renewed(clock())
    clock.advance(10)
    node, heard = FakeNode(), Heard()
    node.gate.set()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    async with asyncio.TaskGroup() as tasks:
        task = await run(writer, tasks)
        writer.add([tokens("a", 0, 1)])
        for _ in range(5):
            await asyncio.sleep(0)
        assert node.payloads == []
        lease.renewed(clock())
        await heard.appends.get()
        task.cancel()


async def test_a_lost_tail_is_written_again_before_anything_new(lease: HeldLease):
    """Nothing is written behind a gap: first what is held, which is not confirmed anew, then what waited.

    If the tail is lost again meanwhile, what is held is asked for again: it may be more by then.
    """
    node, heard = FakeNode(torn=(2, 4)), Heard()
    node.gate.set()
    writer = LogWriter(node, "g", lease, heard.of, on_append=lambda s: None)
    a, b = [tokens("a", 0, 1)], [tokens("b", 0, 9)]
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = await run(writer, tasks)
        writer.add([*a, *b])
        await heard.appends.get()
        writer.mark("a", 5)
        writer.add([tokens("a", 1, 2)])
        assert await heard.losses.get() == TailLost("g")
        writer.add([tokens("a", 2, 3)])
        assert not writer.is_idle
        writer.restore([a, [], b])
        assert await heard.losses.get() == TailLost("g")
        assert node.num_calls == 4
        writer.restore([a, b])
        confirmed = [(await heard.appends.get()).records for _ in range(4)]
        task.cancel()
    stored = [decode_log_batch(payload) for payload in node.payloads]
    assert stored == [[*a, *b], a, a, b, [tokens("a", 1, 2, 3)]]
    assert node.marks == [(), ("a", 5), (), (), ()]
    assert confirmed == [[], [], [], [tokens("a", 1, 2), tokens("a", 2, 3)]]


async def test_a_closed_writer_finishes_first(lease: HeldLease):
    """Closing lets what is left be written, then ``run`` returns."""
    node, heard = FakeNode(), Heard()
    node.gate.set()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    writer.add([tokens("a", 0, 1)])
    writer.close()
    await asyncio.wait_for(writer.run(), 60)
    assert writer.is_idle
    assert len(node.payloads) == 1


def test_merging_keeps_order_and_borders():
    """Only tokens that follow each other within one request, choice and epoch become one record."""
    records = [
        tokens("a", 0, 1),
        tokens("a", 1, 2),
        finish("a", 2),
        tokens("b", 0, 5),
        tokens("b", 1, 6, epoch=2),
        tokens("b", 3, 7, epoch=2),
    ]
    result = [(r.request_id, r.epoch, type(r.fact).__name__, r.fact.seq) for r in merged(records)]
    assert result == [
        ("a", 1, "TokensRecord", 0),
        ("a", 1, "FinishRecord", 2),
        ("b", 1, "TokensRecord", 0),
        ("b", 2, "TokensRecord", 1),
        ("b", 2, "TokensRecord", 3),
    ]


async def test_a_mark_alone_keeps_no_writer(lease: HeldLease):
    """A checkpoint's mark waits for the next append; where none comes, the writer is idle and ends all the same."""
    node, heard = FakeNode(), Heard()
    writer = LogWriter(node, "g", lease, heard.appends.put_nowait, on_append=lambda s: None)
    writer.mark("a", 5)
    assert writer.is_idle
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        await run(writer, tasks)
        writer.close()
    writer.unmark("a")
    assert not writer.is_idle
