"""How long answers get, as far as it is learned, and what is held back for them."""

from common.domain import Priority
from scheduler.planning import output_lengths
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.settings import PlanningSettings
from tests.support.planning import carry_out, make_queue, make_request, make_worker


def lengths() -> OutputLengths:
    """Nothing is known."""
    return OutputLengths(PlanningSettings())


def test_before_anything_is_known_it_is_a_setting():
    """And never more than a request may generate."""
    known = lengths()
    assert known.reserve(make_request("a", max_tokens=1000)) == 128
    assert known.reserve(make_request("a", max_tokens=5)) == 5


def test_lengths_are_learned_by_tenant():
    """One with few ends so far is taken to be like all; deviations count, too."""
    known = lengths()
    for _ in range(40):
        known.learn("short", 10)
        known.learn("long", 600)
    assert known.reserve(make_request("a", tenant="short", max_tokens=1000)) == 10
    assert known.reserve(make_request("a", tenant="long", max_tokens=1000)) == 600
    assert 300 < known.reserve(make_request("a", tenant="new", max_tokens=1000)) < 900


def test_one_that_has_passed_what_is_likely_goes_on_for_a_while():
    """A quarter of what it has generated is held back, within its limit."""
    known = lengths()
    assert known.left("t", 400, 600) == 100
    assert known.left("t", 400, 50) == 50
    assert known.left("t", 0, 0) == 1


def test_memory_is_bounded(monkeypatch):
    """The tenants that ended something longest ago are forgotten."""
    monkeypatch.setattr(output_lengths, "_MAX_TENANTS", 2)
    known = lengths()
    for tenant in "abc":
        for _ in range(20):
            known.learn(tenant, 10)
    for _ in range(100):
        known.learn("c", 1000)
    assert known.likely("a") == known.likely("unheard of") != known.likely("b")


def test_what_is_learned_lets_more_in():
    """Where answers turn out short, more requests fit the same blocks."""
    requests = [make_request(f"r{n}", tokens=16, max_tokens=1000) for n in range(8)]
    queue = make_queue(*requests)
    busy = make_worker(num_running=1, free_blocks=20)
    assert len(carry_out(queue, busy)) == 2
    for _ in range(20):
        queue.lengths.learn("t", 16)
    assert len(carry_out(queue, busy)) == 6
    assert queue.by_class[Priority.NORMAL] == 0
