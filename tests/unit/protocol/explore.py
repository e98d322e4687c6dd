"""Breadth-first search over every interleaving within a scope, with the invariants of docs/delivery.md in each state.

Visited states are kept as 64-bit hashes with the step that led there, so that a violation comes with the
shortest run that shows it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.unit.protocol import redis_model as redis
from tests.unit.protocol.invariants import check
from tests.unit.protocol.redis_model import READER, Checkpoint, Store, make_store
from tests.unit.protocol.scope import Mutation, Scope
from tests.unit.protocol.sessions import Append, Session, Work, steps


class LateCheckpoint(NamedTuple):
    """A checkpoint command whose first copy is still on its way."""

    request: int
    epoch: int
    checkpoint: Checkpoint


_NEXT = "(what comes next fails)"


class State(NamedTuple):
    """Everything: Redis, the sessions, commands that may still arrive, and the late reader's checkpoint.

    ``reader`` is None until the reader has its checkpoint.
    """

    store: Store
    sessions: tuple[Session, ...]
    strays: tuple[Append | LateCheckpoint, ...] = ()
    lost: int = 0
    reader: Checkpoint | None = None


class Violation(AssertionError):
    """An invariant does not hold; the message has the run that leads there."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What was looked at."""

    states: int
    steps: int
    depth: int


def first_state(scope: Scope) -> State:
    """Admitted requests and sessions that know nothing."""
    session = Session((Work(),) * scope.requests)
    return State(make_store(scope.requests), (session,) * scope.sessions)


def explore(scope: Scope) -> Explored:
    """Visit every state.

    Raises:
        Violation: an invariant does not hold.
    """
    first = first_state(scope)
    came_from: dict[int, tuple[int, str]] = {hash(first): (0, "")}
    frontier = [first]
    num_steps = depth = 0
    while frontier:
        depth += 1
        found: list[State] = []
        for state in frontier:
            origin, name = hash(state), _NEXT
            try:
                for name, after in moves(scope, state):
                    num_steps += 1
                    key = hash(after)
                    if key not in came_from:
                        came_from[key] = (origin, name)
                        check(scope, after.store, after.reader)
                        found.append(after)
                    name = _NEXT
            except AssertionError as error:
                raise Violation(_story(error, came_from, origin, name)) from error
        frontier = found
    return Explored(len(came_from), num_steps, depth)


def _story(
    error: AssertionError, came_from: dict[int, tuple[int, str]], key: int, last: str
) -> str:
    run = [last]
    while came_from[key][1]:
        key, name = came_from[key]
        run.append(name)
    return f"{error}\n  after: " + " | ".join(reversed(run))


def moves(scope: Scope, state: State) -> Iterator[tuple[str, State]]:
    """Every step from ``state``, with its name."""
    for index, session in enumerate(state.sessions):
        if session.is_new and index and state.sessions[index - 1].is_new:
            break  # new sessions are alike: the first of them moves
        for name, store, changed in steps(scope, state.store, session):
            after = _with_session(state, index, store, changed)
            yield f"{index} {name}", after
            if state.lost < scope.lost:
                yield from _lost_answer(state, index, name, store)
        if session.pending is not None and state.lost < scope.lost:
            # No answer in time: the append is repeated, and the first copy may arrive at any time, or never.
            strays = tuple(sorted((*state.strays, session.pending), key=repr))
            yield f"{index} time out", state._replace(strays=strays, lost=state.lost + 1)
    for number, stray in enumerate(state.strays):
        others = (*state.strays[:number], *state.strays[number + 1 :])
        store = _arrive(scope, state.store, stray)
        yield f"stray {number}", state._replace(store=store, strays=others)
    yield from _others(scope, state)


def _arrive(scope: Scope, store: Store, stray: Append | LateCheckpoint) -> Store:
    if isinstance(stray, Append):
        return redis.append(store, *stray, keeps_void=scope.keeps_void)
    forward_only = scope.mutation is not Mutation.LATE_CHECKPOINT
    return redis.store_checkpoint(store, *stray, forward_only=forward_only) or store


def _lost_answer(state: State, index: int, name: str, store: Store) -> Iterator[tuple[str, State]]:
    """The record is changed and the session does not know: it will repeat the same command."""
    if name.split()[0] in {"own", "start", "checkpoint", "finish"} and store != state.store:
        yield f"{index} {name} (answer lost)", state._replace(store=store, lost=state.lost + 1)
    if name.startswith("checkpoint") and store != state.store:
        request = int(name.split()[1])
        record = store.records[request]
        stray = LateCheckpoint(request, record.epoch, record.checkpoint)
        strays = tuple(sorted((*state.strays, stray), key=repr))
        yield f"{index} {name} (delayed)", state._replace(strays=strays, lost=state.lost + 1)


def _with_session(state: State, index: int, store: Store, session: Session) -> State:
    sessions = (*state.sessions[:index], session, *state.sessions[index + 1 :])
    return state._replace(store=store, sessions=sessions)


def _others(scope: Scope, state: State) -> Iterator[tuple[str, State]]:
    """Clients and the late reader."""
    store = state.store
    for request, record in enumerate(store.records):
        if scope.cancels and not record.is_cancelled and record.terminal is None:
            after = redis.with_record(store, request, record._replace(is_cancelled=True))
            yield f"cancel {request}", state._replace(store=after)
    if scope.has_late_reader and state.reader is None:
        yield from _late_reader(scope, state)


def _late_reader(scope: Scope, state: State) -> Iterator[tuple[str, State]]:
    """Attach to request 0: first a mark that keeps all there is, then the checkpoint, then the log."""
    store = state.store
    is_marked = READER in dict(store.marks) or scope.mutation is Mutation.UNMARKED_READER
    if not is_marked:
        yield "reader marks", state._replace(store=redis.append(store, (), ((READER, 0),)))
    elif store.records[0].terminal is None:
        yield "reader starts", state._replace(reader=store.records[0].checkpoint)
