"""Writes one reply log: one append in flight, what arrives meanwhile goes into the next.

An append of unknown outcome is repeated with the same bytes until the answer is definite; the log may then hold it
twice, and readers skip what they know (``common.log_fold``).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from common.clock import monotonic_s
from common.domain import Clock
from common.errors import Unavailable
from common.records import LogRecord, TokensRecord
from common.streams import reply_log
from common.streams.node import Node
from common.wire.records import encode_log_batch
from scheduler.lease import HeldLease

# Bounds one append: Redis does nothing else meanwhile, and followers decode it whole.
_MAX_RECORDS = 2048


@dataclass(frozen=True, slots=True)
class Appended:
    """The log holds these records at ``log_id``, and the marks of ``unmarked`` are gone."""

    log: str
    log_id: str
    records: Sequence[LogRecord]
    unmarked: Sequence[str]


class LogWriter:
    """The backlog of one log; ``run`` writes it."""

    def __init__(
        self,
        node: Node,
        log: str,
        lease: HeldLease,
        post: Callable[[Appended], None],
        *,
        on_append: Callable[[float], None],
        clock: Clock = monotonic_s,
    ) -> None:
        """``post`` hears of each confirmed append, ``on_append`` how long it took."""
        self._node = node
        self._log = log
        self._lease = lease
        self._post = post
        self._on_append = on_append
        self._clock = clock
        self._backlog: list[LogRecord] = []
        self._marks: dict[str, int | None] = {}
        self._wanted = asyncio.Event()
        self._is_writing = False
        self._is_closed = False

    @property
    def backlog(self) -> int:
        """Records that no append has taken yet."""
        return len(self._backlog)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be written or being written. A mark that would go with the next append is nothing:
        without one the log only keeps a little more."""
        return not (self._backlog or None in self._marks.values() or self._is_writing)

    def add(self, records: Iterable[LogRecord]) -> None:
        """Write these, in order."""
        self._backlog.extend(records)
        self._wanted.set()

    def mark(self, name: str, position_ms: int) -> None:
        """Let the log keep what follows a position; goes with the next append."""
        self._marks[name] = position_ms

    def unmark(self, name: str) -> None:
        """The log need not keep anything for ``name``; this is worth an append of its own."""
        self._marks[name] = None
        self._wanted.set()

    def close(self) -> None:
        """Let ``run`` return once nothing is left."""
        self._is_closed = True
        self._wanted.set()

    async def run(self) -> None:
        """Write until closed."""
        while not (self._is_closed and self.is_idle):
            await self._wanted.wait()
            self._wanted.clear()
            while self._backlog or None in self._marks.values():
                await self._write_once()

    async def _write_once(self) -> None:
        records, self._backlog = self._backlog[:_MAX_RECORDS], self._backlog[_MAX_RECORDS:]
        marks, self._marks = self._marks, {}
        self._is_writing = True
        payload = encode_log_batch(merged(records)) if records else b""
        log_id = await self._append(payload, marks)
        self._is_writing = False
        unmarked = [name for name, position_ms in marks.items() if position_ms is None]
        self._post(Appended(self._log, log_id, records, unmarked))

    async def _append(self, payload: bytes, marks: dict[str, int | None]) -> str:
        while True:
            await self._lease.until_held()
            started_s = self._clock()
            try:
                log_id = await reply_log.append(
                    self._node, self._log, payload, marks, bound_s=self._lease.remaining_s
                )
            except Unavailable:
                continue  # the same bytes again, for as long as the lease can be held
            self._on_append(self._clock() - started_s)
            return log_id


def merged(records: Sequence[LogRecord]) -> list[LogRecord]:
    """The same facts in fewer records: tokens of a choice that follow each other become one."""
    result: list[LogRecord] = []
    last_of: dict[str, int] = {}
    for record in records:
        fact = record.fact
        position = last_of.get(record.request_id)
        if position is not None and isinstance(fact, TokensRecord):
            last = result[position]
            if (
                isinstance(last.fact, TokensRecord)
                and last.fact.index == fact.index
                and last.epoch == record.epoch
                and last.fact.end_seq == fact.seq
            ):
                result[position] = LogRecord(
                    record.request_id, record.epoch, _joined(last.fact, fact)
                )
                continue
        last_of[record.request_id] = len(result)
        result.append(record)
    return result


def _joined(first: TokensRecord, second: TokensRecord) -> TokensRecord:
    return TokensRecord(
        first.seq,
        first.index,
        first.token_ids + second.token_ids,
        first.text + second.text,
        first.text_chars + second.text_chars,
        first.logprobs + second.logprobs,
    )
