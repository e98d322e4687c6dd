"""The delivery protocol of docs/delivery.md, checked in every interleaving within a scope."""

import pytest

from tests.unit.protocol.explore import Violation, explore
from tests.unit.protocol.scope import Mutation, Scope
from tests.unit.protocol.scopes import MUTANTS, SCOPES

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
def test_the_protocol_holds(scope):
    """No reachable state breaks an invariant, and from each of them every request can still be ended."""
    found = explore(scope)
    print(found)
    assert found.states > 10_000, "the model does not move"


@pytest.mark.parametrize("mutation", Mutation, ids=lambda mutation: mutation.name)
def test_each_rule_is_needed(mutation):
    """Without the rule the check finds a run that breaks an invariant: it would notice a broken protocol."""
    with pytest.raises(Violation) as found:
        explore(MUTANTS[mutation])
    print(found.value)
    assert "after: " in str(found.value)


@pytest.mark.parametrize("scope", [Scope(lost=0), Scope(sessions=1)], ids=["takeover", "alone"])
def test_records_that_tell_nothing_change_nothing(scope):
    """Not carrying void records along reaches fewer states, and the same verdict."""
    reduced = Scope(scope.requests, scope.sessions, lost=scope.lost, keeps_void=False)
    assert explore(reduced).states <= explore(scope).states
