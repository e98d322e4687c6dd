"""Idempotency keys, checked in every interleaving of callers who die, give up and are refused: one execution."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.unit.protocol.keyed import (
    FREED,
    Caller,
    KeyMutation,
    Phase,
    Store,
    endings,
    steps,
)

pytestmark = pytest.mark.timeout(600)


class State(NamedTuple):
    """The key, the records, the callers."""

    store: Store
    callers: tuple[Caller, ...]


def first_state(digests: str) -> State:
    """A caller for each digest; their claims have ids of their own."""
    return State(
        Store(), tuple(Caller(digest, 10 * place) for place, digest in enumerate(digests))
    )


def moves(state: State, mutation: KeyMutation | None = None) -> Iterator[tuple[str, State]]:
    """Every step from `state`, with its name."""
    for place, caller in enumerate(state.callers):
        for name, store, changed in steps(state.store, caller, mutation):
            callers = (*state.callers[:place], changed, *state.callers[place + 1 :])
            yield f"{place} {name}", State(store, callers)
    for name, store in endings(state.store):
        yield name, state._replace(store=store)


def check(state: State) -> None:
    """One execution; who got a request got his own; a key that says admitted has a record."""
    store = state.store
    executions = [record.id for record in store.records if record.status not in FREED]
    assert len(executions) <= 1, f"one key runs {executions}"
    for caller in state.callers:
        if caller.phase is Phase.GOT:
            assert caller.claim is not None
            record = store.record(caller.claim.id)
            assert record is not None, f"{caller} follows nothing"
            assert record.digest == caller.digest, f"{caller} got another's request"
    if store.claim is not None and store.claim.is_admitted:
        assert store.record(store.claim.id) is not None, "confirmed without a record"
    check_can_be_used(store)


@cache
def check_can_be_used(store: Store) -> None:
    """One more caller, alone, comes to an end: a request of his own, the one that stands, or a refusal."""
    caller = Caller("a", 1000)
    for _ in range(30):
        if caller.phase in (Phase.GOT, Phase.ENDED):
            return
        _, store, caller = next(steps(store, caller, None))
        for _, ended in endings(store):  # a cancellation comes to its end
            store = ended
            break
    raise AssertionError(f"nobody can use this key any more: {store}, {caller}")


def explore(digests: str, mutation: KeyMutation | None = None) -> int:
    """How many states there are, each of them checked."""
    first = first_state(digests)
    seen, frontier = {first}, [(first, "")]
    while frontier:
        found = []
        for state, story in frontier:
            for name, after in moves(state, mutation):
                if after in seen:
                    continue
                seen.add(after)
                told = f"{story} | {name}"
                try:
                    check(after)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n  after: {told}") from error
                found.append((after, told))
        frontier = found
    return len(seen)


@pytest.mark.parametrize("digests", ["aa", "ab", "aab"])
def test_a_key_is_executed_once(digests: str):
    """Callers with one body, and one with another: never two executions, each gets his own, and none is stuck."""
    assert explore(digests) > 500


@pytest.mark.parametrize("mutation", KeyMutation, ids=lambda mutation: mutation.name)
def test_each_rule_of_keys_is_needed(mutation: KeyMutation):
    """Without it the search finds a run with two executions, or a request that is nobody's."""
    with pytest.raises(AssertionError, match=r"one key runs|another's request"):
        explore("aab", mutation)
