"""Settles the quotas of requests that have ended, then lets their inbox entries go.

In this order: who finds an entry after a crash in between settles again, which changes nothing. Apart from the other
acks, because a tenant's counters may lie on another node, which may be away: only its own requests wait for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from common.domain import Priority, RequestId, Usage
from common.errors import Unavailable
from common.streams import quota
from common.streams.following import read_record
from common.streams.node import Node
from common.wire.records import UndecodableError, decode_terminal
from scheduler.lease import HeldLease

_BOUND_S = 1.0


@dataclass(frozen=True, slots=True)
class Due:
    """A quota that was reserved and is to be settled; ``usage`` None: the terminal record knows it."""

    tenant: str
    request_id: RequestId
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class EndedEntry:
    """An inbox entry that may go, once what is due is settled."""

    priority: Priority
    entry_id: str
    due: Due | None = None


class Settlements:
    """What is due; ``run`` settles it."""

    def __init__(self, node: Node, lease: HeldLease, ack: Callable[[Priority, str], None]) -> None:
        """``ack`` gets entries whose requests are settled."""
        self._node = node
        self._lease = lease
        self._ack = ack
        self._entries: list[EndedEntry] = []
        self._wanted = asyncio.Event()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be settled or being settled."""
        return not (self._entries or self._is_writing)

    def add(self, entry: EndedEntry) -> None:
        """Its terminal record is written, or it never had a record."""
        if entry.due is None:
            self._ack(entry.priority, entry.entry_id)
            return
        self._entries.append(entry)
        self._wanted.set()

    async def run(self) -> None:
        """Settle until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            entries, self._entries = self._entries, []
            self._is_writing = True
            by_tenant: dict[str, list[EndedEntry]] = {}
            for entry in entries:
                assert entry.due is not None
                by_tenant.setdefault(entry.due.tenant, []).append(entry)
            await self._lease.until_held()
            await asyncio.gather(*(self._settle(group) for group in by_tenant.values()))
            self._is_writing = False

    async def _settle(self, entries: list[EndedEntry]) -> None:
        """One tenant's; what cannot be settled now comes again."""
        try:
            debits = [
                debit
                for entry in entries
                if entry.due is not None and (debit := await self._debit(entry.due)) is not None
            ]
            await quota.settle(self._node, debits, bound_s=_BOUND_S)
        except Unavailable:
            self._entries += entries
            self._wanted.set()
            return
        for entry in entries:
            self._ack(entry.priority, entry.entry_id)

    async def _debit(self, due: Due) -> quota.Debit | None:
        """None: nobody can tell what was used, and the reservation stands until it runs out."""
        usage = due.usage
        if usage is None:
            record = await read_record(self._node, due.request_id, bound_s=_BOUND_S)
            if record is None or not record.terminal:
                return None
            try:
                usage = decode_terminal(record.terminal).usage
            except UndecodableError:
                return None
        tokens = usage.prompt_tokens + usage.completion_tokens
        return quota.Debit(due.tenant, due.request_id, tokens)
