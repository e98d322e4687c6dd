"""Writes one reply log: one append in flight, what arrives meanwhile goes into the next.

An append of unknown outcome is repeated with the same bytes until the answer is definite; the log may then hold it
twice, and readers skip what they know (``common.log_fold``).

A log that has lost its end takes nothing more until its requests have been written again from the leader's memory
(``scheduler.lost_tail``): so no reader ever finds later tokens in front of earlier ones.
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


@dataclass(frozen=True, slots=True)
class TailLost:
    """Redis has lost the log's end: the writer waits for ``restore``."""

    log: str


class LogWriter:
    """The backlog of one log; ``run`` writes it."""

    def __init__(
        self,
        node: Node,
        log: str,
        lease: HeldLease,
        post: Callable[[Appended | TailLost], None],
        *,
        on_append: Callable[[float], None],
        clock: Clock = monotonic_s,
    ) -> None:
        """``post`` hears of each confirmed append and of a lost end, ``on_append`` how long an append took."""
        self._node = node
        self._log = log
        self._lease = lease
        self._post = post
        self._on_append = on_append
        self._clock = clock
        self._backlog: list[LogRecord] = []
        self._marks: dict[str, int | None] = {}
        self._last_id = ""
        self._is_torn = False
        self._held: list[Sequence[LogRecord]] = []
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
        return not (self._has_work or self._is_torn or self._is_writing)

    @property
    def _has_work(self) -> bool:
        return bool(self._held or self._backlog or None in self._marks.values())

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

    def restore(self, held: Iterable[Sequence[LogRecord]]) -> None:
        """After ``TailLost``: write these first, an append each; they were confirmed before and are not again."""
        self._held = [records for records in held if records]
        self._is_torn = False
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
            while self._has_work and not self._is_torn:
                await self._write_once()

    async def _write_once(self) -> None:
        written: Sequence[LogRecord]
        records: list[LogRecord] = []
        if self._held:
            written = self._held.pop(0)
        else:
            records, self._backlog = self._backlog[:_MAX_RECORDS], self._backlog[_MAX_RECORDS:]
            written = merged(records)
        marks, self._marks = self._marks, {}
        self._is_writing = True
        payload = encode_log_batch(written) if written else b""
        try:
            log_id = await self._append(payload, marks)
        except reply_log.LostTailError:
            self._tear(records, marks)
        else:
            unmarked = [name for name, position_ms in marks.items() if position_ms is None]
            self._post(Appended(self._log, log_id, records, unmarked))
        self._is_writing = False

    def _tear(self, records: list[LogRecord], marks: dict[str, int | None]) -> None:
        """What was not taken is still to be written, once the log holds again what comes before it."""
        self._backlog[:0] = records
        self._marks = marks | self._marks
        self._held = []
        self._last_id = ""
        self._is_torn = True
        self._post(TailLost(self._log))

    async def _append(self, payload: bytes, marks: dict[str, int | None]) -> str:
        while True:
            await self._lease.until_held()
            started_s = self._clock()
            try:
                log_id = await reply_log.append(
                    self._node,
                    self._log,
                    payload,
                    marks,
                    last=self._last_id,
                    bound_s=self._lease.remaining_s,
                )
            except Unavailable:
                continue  # the same bytes again, for as long as the lease can be held
            self._on_append(self._clock() - started_s)
            self._last_id = log_id or self._last_id
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
