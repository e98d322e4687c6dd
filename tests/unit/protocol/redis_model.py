"""Redis as the model sees it: one log, its marks, the records; and the scripts, as pure functions.

Each function repeats a script of ``common/streams/scripts``; ``tests/integration/protocol`` holds both against
each other. Positions count appends from the beginning of the log.
"""

from typing import NamedTuple

from common.domain import FinishReason
from tests.unit.protocol.reading import EMPTY, Entry, LogGapError, Rec, Summary, fold, fold_one

READER = -1
"""Name of the late reader's mark, beside the requests' numbers."""


class Checkpoint(NamedTuple):
    """What a takeover or a late reader starts with: all that is logged up to ``position``."""

    position: int = 0
    summary: Summary = EMPTY


class Terminal(NamedTuple):
    """The outcome of a request, and the epoch that wrote it."""

    epoch: int
    tokens: tuple[int, ...]
    finish: FinishReason


class Record(NamedTuple):
    """A request's record and its inbox entry."""

    epoch: int = 0
    is_cancelled: bool = False
    checkpoint: Checkpoint = Checkpoint()
    terminal: Terminal | None = None
    is_acked: bool = False


class Log(NamedTuple):
    """The reply log: what is left of it, and what readers know who saw the part that was trimmed."""

    base: int
    known_at_base: tuple[Summary, ...]
    entries: tuple[Entry, ...] = ()

    @property
    def end(self) -> int:
        """Position behind the last append."""
        return self.base + len(self.entries)

    def behind(self, position: int) -> tuple[Entry, ...]:
        """What Redis answers to a read behind ``position``: silently without what was trimmed."""
        return self.entries[max(0, position - self.base) :]

    def full_view(self, request: int) -> Summary:
        """What a reader knows who has followed from the beginning."""
        return fold(self.known_at_base[request], request, self.entries)


class Store(NamedTuple):
    """Everything in Redis. Marks are pairs of name and position, sorted."""

    log: Log
    records: tuple[Record, ...]
    marks: tuple[tuple[int, int], ...] = ()


Marks = tuple[tuple[int, int | None], ...]


def make_store(num_requests: int) -> Store:
    """Requests that were admitted and that nobody has taken."""
    return Store(Log(0, (EMPTY,) * num_requests), (Record(),) * num_requests)


def with_record(store: Store, request: int, record: Record) -> Store:
    """The store with another record of ``request``."""
    records = (*store.records[:request], record, *store.records[request + 1 :])
    return store._replace(records=records)


def own(store: Store, request: int) -> Store:
    """own.lua on an open record."""
    record = store.records[request]
    return with_record(store, request, record._replace(epoch=record.epoch + 1))


def start(store: Store, request: int, *, only_new: bool = True) -> Store | None:
    """start.lua; None: the request has a past, or is to be cancelled."""
    record = store.records[request]
    if (record.epoch and only_new) or record.is_cancelled or record.terminal is not None:
        return None
    return own(store, request)


def append(store: Store, entry: Entry, marks: Marks, *, keeps_void: bool = True) -> Store:
    """append.lua: move marks, append, trim behind the oldest mark.

    Without ``keeps_void`` records that tell a reader nothing leave no trace (see ``Scope``).
    """
    changed = dict(store.marks)
    for name, position in marks:
        if position is None:
            changed.pop(name, None)
        else:
            changed[name] = position
    log = store.log
    if entry:
        kept = entry if keeps_void else tuple(rec for rec in entry if _tells(log, rec))
        log = Log(log.base, log.known_at_base, (*log.entries, kept) if kept else log.entries)
        if changed:
            log = _trimmed(log, min(changed.values()))
    return Store(log, store.records, tuple(sorted(changed.items())))


def _tells(log: Log, rec: Rec) -> bool:
    known = log.full_view(rec.request)
    if rec.is_fence and rec.epoch > known.fence_epoch:
        # Behind a finish it tells a reader nothing, but its writer reads up to it.
        return not any(rec in entry for entry in log.entries)
    try:
        return fold_one(known, rec) != known
    except LogGapError:
        return True


def _trimmed(log: Log, position: int) -> Log:
    count = min(max(0, position - log.base), len(log.entries))
    dropped = log.entries[:count]
    known = tuple(fold(known, r, dropped) for r, known in enumerate(log.known_at_base))
    return Log(log.base + count, known, log.entries[count:])


def store_checkpoint(
    store: Store, request: int, epoch: int, checkpoint: Checkpoint, *, forward_only: bool = True
) -> Store | None:
    """checkpoint.lua; None: the request is lost or has ended. An older checkpoint changes nothing."""
    record = store.records[request]
    if record.terminal is not None or record.epoch != epoch:
        return None
    if forward_only and checkpoint.position < record.checkpoint.position:
        return store
    return with_record(store, request, record._replace(checkpoint=checkpoint))


def finish(
    store: Store, request: int, terminal: Terminal, *, checks_epoch: bool = True
) -> Store | None:
    """finish.lua; None: another epoch owns or has ended the request."""
    record = store.records[request]
    if record.terminal is not None and record.terminal.epoch == terminal.epoch:
        return store
    if checks_epoch and (record.terminal is not None or record.epoch != terminal.epoch):
        return None
    return with_record(store, request, record._replace(terminal=terminal, checkpoint=Checkpoint()))
