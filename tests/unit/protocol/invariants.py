"""What must hold in every state (docs/delivery.md).

- Readers: one that follows from the beginning sees each seq once, in order, each token generated behind those
  that precede it; one that starts at the record's checkpoint, or attached earlier, ends up knowing the same.
- Outcomes: a terminal record says what the log says, and the log cannot change it any more.
- Acks: an entry is acked only after its terminal record.
- No dead state: one more session, alone, always brings every request to its end.
"""

from functools import cache

from common.request_status import RequestStatus, transition
from tests.unit.protocol.reading import LogGapError, fold, is_chain
from tests.unit.protocol.redis_model import Checkpoint, Store
from tests.unit.protocol.scope import Mutation, Scope
from tests.unit.protocol.sessions import Session, Work, status_of, steps


def check(scope: Scope, store: Store, reader: Checkpoint | None) -> None:
    """Check everything in one state."""
    for request in range(scope.requests):
        _check_request(store, request)
    if reader is not None:
        _check_late_reader(scope, store, reader)
    _check_can_end(scope, store)


@cache
def _check_request(store: Store, request: int) -> None:
    record = store.records[request]
    try:
        known = store.log.full_view(request)
    except LogGapError as gap:
        raise AssertionError(f"a reader misses tokens of {request}: {gap}") from gap
    assert is_chain(known.tokens), f"{request} was continued from other tokens: {known}"
    if record.terminal is None:
        assert not record.is_acked, f"{request} was acked without a terminal record"
        _check_start(store, request, record.checkpoint)
        return
    assert (record.terminal.tokens, record.terminal.finish) == (known.tokens, known.finish), (
        f"{request} ended as {record.terminal}, its log says {known}"
    )
    assert transition(RequestStatus.QUEUED, status_of(record.terminal)).is_final


def _check_start(store: Store, request: int, checkpoint: Checkpoint) -> None:
    try:
        known = fold(checkpoint.summary, request, store.log.behind(checkpoint.position))
    except LogGapError as gap:
        raise AssertionError(f"the log is cut behind the checkpoint of {request}: {gap}") from gap
    full = store.log.full_view(request)
    assert (known.tokens, known.finish) == (full.tokens, full.finish), (
        f"from its checkpoint {request} is {known}, in full it is {full}"
    )


def _check_late_reader(scope: Scope, store: Store, reader: Checkpoint) -> None:
    try:
        known = fold(reader.summary, 0, store.log.behind(reader.position))
    except LogGapError:
        assert scope.mutation is Mutation.UNMARKED_READER, "a marked log was trimmed"
        return  # it notices, and starts again
    full = store.log.full_view(0)
    seen = len(known.tokens)
    assert known.tokens == full.tokens[:seen], f"a late reader saw {known}, the log says {full}"
    assert known.finish in (None, full.finish), f"a late reader saw {known}, the log says {full}"


@cache
def _check_can_end(scope: Scope, store: Store) -> None:
    session = Session((Work(),) * scope.requests)
    for _ in range(60):
        if all(record.is_acked for record in store.records):
            return
        _, store, session = next(
            step for step in steps(scope, store, session) if not step[0].startswith("lose")
        )
        for request in range(scope.requests):
            _check_request(store, request)
    raise AssertionError(f"nobody can end this any more: {store}, {session}")
