"""The inbox streams of a partition, one per class: what was admitted and has not ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis.exceptions

from common import keys
from common.domain import Partition, Priority
from common.streams.node import BLOCK_MS, Node, RedisClient, decoded
from common.streams.scripts import ScriptCall, run_scripts

_CLASSES = sorted(Priority, reverse=True)
_PAGE = 500
_EMPTY_CONSUMER_IDLE_MS = 60_000


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An admitted request as ordering sees it; times by the partition's node, Unix milliseconds.

    ``request_id`` is None when the entry's content is gone or unreadable: it can only be acked. ``log`` and ``start``
    are the record's; '' where an older gateway admitted.
    """

    priority: Priority
    entry_id: str
    request_id: str | None
    header: bytes = b""
    admitted_ms: int = 0
    deadline_ms: int = 0
    log: str = ""
    start: str = ""


async def create_groups(node: Node, partition: Partition) -> None:
    """Create the consumer group of each inbox, from the first entry on. Repeating it is harmless."""

    async def operation(client: RedisClient) -> None:
        for priority in _CLASSES:
            key = keys.inbox(partition, priority)
            # A full Redis refuses to create even what is there.
            if await _has_group(client, key):
                continue
            try:
                await client.xgroup_create(key, keys.GROUP, id="0", mkstream=True)
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    await node.call(operation)


async def has_groups(node: Node, partition: Partition, *, bound_s: float) -> bool:
    """Whether any inbox of the partition has a consumer group, which means that somebody has led it.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """

    async def operation(client: RedisClient) -> bool:
        for priority in _CLASSES:
            if await _has_group(client, keys.inbox(partition, priority)):
                return True
        return False

    return await node.call(operation, bound_s=bound_s)


async def _has_group(client: RedisClient, key: str) -> bool:
    try:
        return bool(await client.xinfo_groups(key))
    except redis.exceptions.ResponseError as error:
        if "no such key" not in str(error):
            raise
        return False


async def read_new(node: Node, partition: Partition, consumer: str) -> list[InboxEntry]:
    """Entries that nobody has read, waiting up to BLOCK_MS for the first. They stay pending to ``consumer``.

    After a connection error entries may be pending to the consumer without its knowledge: the caller lists
    what is pending (``read_pending``) whenever ``Node.num_errors`` has risen.
    """
    streams = {keys.inbox(partition, priority): ">" for priority in _CLASSES}
    try:
        answer = await node.read(
            lambda client: client.xreadgroup(
                keys.GROUP, consumer, streams, count=_PAGE, block=BLOCK_MS
            )
        )
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith("NOGROUP"):
            raise
        # A flush or a fail-over to an empty node took the groups away.
        await create_groups(node, partition)
        return []
    by_key = {keys.inbox(partition, priority): priority for priority in _CLASSES}
    return [
        _entry(by_key[key.decode()], entry_id, fields)
        for key, entries in (answer or [])
        for entry_id, fields in entries
    ]


async def read_pending(node: Node, partition: Partition) -> list[InboxEntry]:
    """Every entry that somebody has read and nobody has acked, whoever it is pending to."""
    return [
        entry
        for priority in _CLASSES
        for entry in await _pending_of_class(node, partition, priority)
    ]


async def _pending_of_class(
    node: Node, partition: Partition, priority: Priority, consumer: str | None = None
) -> list[InboxEntry]:
    key = keys.inbox(partition, priority)
    found: list[InboxEntry] = []
    start = "-"
    while True:
        page = await node.call(
            partial(_pending_page, key=key, start=start, consumer=consumer),
        )
        ids = [item["message_id"] for item in page]
        found += await _entries(node, priority, key, ids)
        if len(page) < _PAGE:
            return found
        start = f"({ids[-1].decode()}"


async def _pending_page(
    client: RedisClient, *, key: str, start: str, consumer: str | None
) -> list[dict[str, Any]]:
    return await client.xpending_range(key, keys.GROUP, start, "+", _PAGE, consumername=consumer)


async def _entries(
    node: Node, priority: Priority, key: str, entry_ids: Sequence[bytes]
) -> list[InboxEntry]:
    if not entry_ids:
        return []

    async def operation(client: RedisClient) -> list[list[tuple[bytes, dict[bytes, bytes]]]]:
        pipeline = client.pipeline(transaction=False)
        for entry_id in entry_ids:
            pipeline.xrange(key, entry_id, entry_id)
        return await pipeline.execute()

    answers = await node.call(operation)
    return [
        _entry(priority, entry_id, answer[0][1] if answer else {})
        for entry_id, answer in zip(entry_ids, answers, strict=True)
    ]


async def ack(
    node: Node,
    partition: Partition,
    entries: Sequence[tuple[Priority, str]],
    *,
    bound_s: float | None = None,
) -> None:
    """Ack and delete entries whose requests have ended. Repeating it is harmless.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    by_class: dict[Priority, list[str]] = {}
    for priority, entry_id in entries:
        by_class.setdefault(priority, []).append(entry_id)
    calls = [
        ScriptCall(
            "ack", [keys.inbox(partition, priority)], [keys.GROUP, *ids[start : start + _PAGE]]
        )
        for priority, ids in by_class.items()
        for start in range(0, len(ids), _PAGE)
    ]
    await run_scripts(node, calls, bound_s=bound_s)


async def read_foreign(node: Node, partition: Partition, mine: str) -> list[InboxEntry]:
    """Entries pending to other consumers than ``mine``; consumers that hold nothing for long are removed.

    A scheduler that was paused in a blocking read is still served by Redis: its entries have to be found.
    """
    answers = await run_scripts(
        node,
        [
            ScriptCall(
                "sweep_consumers",
                [keys.inbox(partition, priority)],
                [keys.GROUP, mine, _EMPTY_CONSUMER_IDLE_MS],
            )
            for priority in _CLASSES
        ],
    )
    return [
        entry
        for priority, names in zip(_CLASSES, answers, strict=True)
        for name in decoded(names)
        for entry in await _pending_of_class(node, partition, priority, consumer=name)
    ]


def _entry(priority: Priority, entry_id: bytes, fields: dict[bytes, bytes] | None) -> InboxEntry:
    try:
        assert fields is not None
        return InboxEntry(
            priority,
            entry_id.decode(),
            fields[b"id"].decode(),
            fields[b"header"],
            int(fields[b"admitted_ms"]),
            int(fields[b"deadline_ms"]),
            fields.get(b"log", b"").decode(),
            fields.get(b"start", b"").decode(),
        )
    except (AssertionError, KeyError, ValueError):
        return InboxEntry(priority, entry_id.decode(), None)
