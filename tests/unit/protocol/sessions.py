"""Scheduler sessions as the model sees them: every step is one Redis command and what follows from its answer.

    own ─▶ fence ─▶ read up to the first own fence ─▶ decide ─┬─▶ run: tokens, finish ─▶ terminal record ─▶ ack
    start (own and decide at once, what is new) ──────────────┘        ▲
                                               decide ─▶ logged finish, cancel, expiry ─▶ terminal record ─▶ ack

A session that stops for ever is one that takes no further step, so crashes need no step of their own; neither
do pauses: any step may come arbitrarily late.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from common.domain import FinishReason
from common.request_status import RequestStatus, status_of_finish
from tests.unit.protocol import redis_model as redis
from tests.unit.protocol.reading import (
    EMPTY,
    Entry,
    LogGapError,
    Rec,
    Summary,
    fold,
    fold_one,
    next_token,
)
from tests.unit.protocol.redis_model import Checkpoint, Store, Terminal
from tests.unit.protocol.scope import Mutation, Scope


class Phase(IntEnum):
    """Where a session is with a request."""

    NONE = 0
    FENCING = 1
    FENCED = 2
    RUNNING = 3
    LOGGED = 4
    SETTLED = 5
    GONE = 6


class Work(NamedTuple):
    """A session's work on one request. ``known`` is confirmed by the log; ``ready`` waits for the next append."""

    phase: Phase = Phase.NONE
    epoch: int = 0
    start: Checkpoint = Checkpoint()
    known: Summary = EMPTY
    position: int = 0
    attempt: int = 0
    num_checkpoints: int = 0
    ready: Entry = ()


GONE = Work(Phase.GONE)


class Append(NamedTuple):
    """An append as it is sent and, while its answer is unknown, sent again."""

    entry: Entry
    marks: redis.Marks


class Session(NamedTuple):
    """One scheduler: its work, and the one append it has in flight."""

    works: tuple[Work, ...]
    pending: Append | None = None

    @property
    def is_new(self) -> bool:
        """Whether it has done nothing yet."""
        return all(work.phase is Phase.NONE for work in self.works)

    def waits_for(self, request: int) -> bool:
        """Whether something of ``request`` is in flight."""
        return self.pending is not None and any(r.request == request for r in self.pending.entry)


Step = tuple[str, Store, Session]
"""Name of the step, and what is true after it."""


def steps(scope: Scope, store: Store, session: Session) -> Iterator[Step]:
    """Every step that the session may take next, lost answers aside."""
    if session.pending is not None:
        yield "answer", *_answer(scope, store, session)
    elif ready := tuple(rec for work in session.works for rec in work.ready):
        yield "send", store, _send(session, ready)
    for request, work in enumerate(session.works):
        for name, after, changed in _work_steps(scope, store, session, request, work):
            works = (*session.works[:request], changed, *session.works[request + 1 :])
            after_step = Session(works, session.pending)
            if scope.requests == 1 and changed.ready and session.pending is None:
                # Nothing else could join the append, and nobody sees when it is put together.
                after_step = _send(after_step, changed.ready)
            yield f"{name} {request}", after, after_step


def _send(session: Session, ready: Entry) -> Session:
    marks = tuple(
        (request, work.start.position) for request, work in enumerate(session.works) if work.ready
    )
    works = tuple(work._replace(ready=()) for work in session.works)
    return Session(works, Append(ready, marks))


def _answer(scope: Scope, store: Store, session: Session) -> tuple[Store, Session]:
    assert session.pending is not None
    entry = session.pending.entry
    store = redis.append(store, *session.pending, keeps_void=scope.keeps_void)
    works = tuple(
        _confirm(work, [rec for rec in entry if rec.request == request], store.log.end)
        for request, work in enumerate(session.works)
    )
    return store, Session(works)


def _confirm(work: Work, recs: list[Rec], position: int) -> Work:
    if not recs or work.phase in (Phase.NONE, Phase.GONE):
        return work
    if work.phase is Phase.FENCING:
        is_own = any(rec.epoch == work.epoch for rec in recs)
        return work._replace(phase=Phase.FENCED) if is_own else work
    known = work.known
    for rec in recs:
        known = fold_one(known, rec)
    phase = Phase.RUNNING if known.finish is None else Phase.LOGGED
    return work._replace(known=known, position=position, phase=phase)


def _work_steps(
    scope: Scope, store: Store, session: Session, request: int, work: Work
) -> Iterator[tuple[str, Store, Work]]:
    record = store.records[request]
    match work.phase:
        case Phase.NONE:
            if not record.is_acked:
                yield "own", *_own(scope, store, request)
            yield from _start(scope, store, request)
        case Phase.FENCED:
            yield "decide", store, _decide(scope, store, request, work)
        case Phase.RUNNING:
            yield from _run(scope, store, session, request, work)
        case Phase.LOGGED:
            yield "finish", *_finish(scope, store, request, work)
        case Phase.SETTLED:
            after = redis.append(store, (), ((request, None),))
            yield "ack", redis.with_record(after, request, record._replace(is_acked=True)), GONE


def _own(scope: Scope, store: Store, request: int) -> tuple[Store, Work]:
    if store.records[request].terminal is not None:
        return store, Work(Phase.SETTLED)
    store = redis.own(store, request)
    record = store.records[request]
    work = Work(Phase.FENCED, record.epoch, record.checkpoint)
    if record.epoch == 1 or scope.mutation is Mutation.NO_FENCE:
        return store, work
    fences = [Rec(request, record.epoch)]
    if scope.mutation is Mutation.SESSION_FENCE:
        fences += [
            Rec(other, store.records[other].epoch + 1)
            for other in range(scope.requests)
            if other != request
        ]
    return store, work._replace(phase=Phase.FENCING, ready=tuple(fences))


def _start(scope: Scope, store: Store, request: int) -> Iterator[tuple[str, Store, Work]]:
    after = redis.start(store, request, only_new=scope.mutation is not Mutation.START_AGAIN)
    if after is not None:
        record = after.records[request]
        start = record.checkpoint
        position = max(start.position, store.log.base)
        yield (
            "start",
            after,
            Work(Phase.RUNNING, record.epoch, start, start.summary, position),
        )


def _decide(scope: Scope, store: Store, request: int, work: Work) -> Work:
    """Read from the checkpoint up to the first own fence; then a logged finish outranks a cancellation."""
    record = store.records[request]
    entries: tuple[Entry, ...] = ()
    if scope.mutation is Mutation.NO_FENCE:
        entries = store.log.behind(work.start.position)
    elif work.epoch > 1:
        found = _up_to_own_fence(store, request, work)
        if found is None:
            # Trimmed by a later owner. If it was not, nobody could ever take this request over.
            assert record.epoch != work.epoch, "own fence is gone"
            return GONE
        entries = found
    try:
        known = fold(work.start.summary, request, entries)
    except LogGapError:
        assert record.epoch != work.epoch, "the log has a gap behind the checkpoint"
        return GONE
    position = max(work.start.position, store.log.base) + len(entries)
    work = work._replace(known=known, position=position)
    if known.finish is not None:
        return work._replace(phase=Phase.LOGGED)
    if record.epoch != work.epoch:
        return GONE  # take.lua says so
    if record.is_cancelled:
        return _end(request, work, FinishReason.CANCELLED)
    return work._replace(phase=Phase.RUNNING)


def _up_to_own_fence(store: Store, request: int, work: Work) -> tuple[Entry, ...] | None:
    entries = store.log.behind(work.start.position)
    fence = Rec(request, work.epoch)
    for index, entry in enumerate(entries):
        if fence in entry:
            return entries[: index + 1]
    return None


def _end(request: int, work: Work, reason: FinishReason) -> Work:
    seq = len(work.known.tokens)
    ending = Rec(request, work.epoch, seq, finish=reason)
    return work._replace(phase=Phase.RUNNING, ready=(ending,))


def _run(
    scope: Scope, store: Store, session: Session, request: int, work: Work
) -> Iterator[tuple[str, Store, Work]]:
    waits = session.waits_for(request) or bool(work.ready)
    if waits and scope.mutation is not Mutation.DECIDE_UNCONFIRMED:
        return
    if work.ready:
        return
    left = scope.num_tokens - len(work.known.tokens)
    if not waits or work.attempt:
        for count in range(1, left + 1):
            yield (
                f"generate {count}",
                store,
                work._replace(ready=_generate(request, work, count, left)),
            )
    if work.attempt < scope.worker_losses:
        yield "lose worker", store, work._replace(attempt=work.attempt + 1)
    if store.records[request].is_cancelled:
        yield "heed cancel", store, _end(request, work, FinishReason.CANCELLED)
    if scope.expires:
        yield "expire", store, _end(request, work, FinishReason.DEADLINE)
    if work.num_checkpoints < scope.checkpoints and len(work.known.tokens) > len(
        work.start.summary.tokens
    ):
        yield "checkpoint", *_checkpoint(scope, store, request, work)


def _generate(request: int, work: Work, count: int, left: int) -> Entry:
    tokens = work.known.tokens
    for _ in range(count):
        tokens = (*tokens, next_token(tokens, work.epoch, work.attempt))
    seq = len(work.known.tokens)
    made = Rec(request, work.epoch, seq, tokens[seq:])
    if count < left:
        return (made,)
    return made, Rec(request, work.epoch, len(tokens), finish=FinishReason.LENGTH)


def _checkpoint(scope: Scope, store: Store, request: int, work: Work) -> tuple[Store, Work]:
    checkpoint = Checkpoint(work.position, work.known._replace(fence_epoch=work.epoch))
    after = redis.store_checkpoint(store, request, work.epoch, checkpoint)
    if scope.mutation is Mutation.TRIM_BEYOND_CHECKPOINT:
        # The mark moves although the record still has the old checkpoint.
        return store, work._replace(start=checkpoint, num_checkpoints=work.num_checkpoints + 1)
    if after is None:
        return store, GONE
    return after, work._replace(start=checkpoint, num_checkpoints=work.num_checkpoints + 1)


def _finish(scope: Scope, store: Store, request: int, work: Work) -> tuple[Store, Work]:
    assert work.known.finish is not None
    terminal = Terminal(work.epoch, work.known.tokens, work.known.finish)
    checks_epoch = scope.mutation is not Mutation.UNCHECKED_TERMINAL
    after = redis.finish(store, request, terminal, checks_epoch=checks_epoch)
    if after is not None:
        return after, Work(Phase.SETTLED)
    if store.records[request].terminal is not None:
        return store, Work(Phase.SETTLED)
    return store, GONE


def status_of(terminal: Terminal) -> RequestStatus:
    """The final status that the record shows."""
    return status_of_finish(terminal.finish)
