"""Who makes room for whom, by the plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import Priority
from scheduler.planning.plan import plan
from tests.support.planning import Runs, assigned, make_queue, make_request, make_worker


def full(*running: Runs, worker_id: str = "w", **changes):
    """A worker without a free slot."""
    values = {"free_seqs": 0, "num_running": len(running), "running": running} | changes
    values |= {"num_leaving": sum(one.is_leaving for one in running)}
    lowest = min((one.priority for one in running), default=None)
    return make_worker(worker_id, lowest_running=lowest, **values)


def high(request_id: str = "high", **changes):
    """A request that arrived at 9.5."""
    return make_request(request_id, **({"priority": Priority.HIGH, "arrival_s": 9.5} | changes))


def leaves(made) -> list[str]:
    return [one.request_id for one in made.preemptions]


def test_a_lower_class_makes_room():
    """With no other way to start, one victim goes, and the decision says for whom."""
    made = plan(make_queue(high()), [full(Runs("a"), Runs("b"))], 10.0)
    assert leaves(made) == ["a"]
    assert made.preemptions[0].for_request_id == "high"
    assert made.preemptions[0].reason == "for HIGH, which waited 0.50 s"


def test_room_elsewhere_is_taken_first():
    """Nobody leaves while a worker has a free slot."""
    made = plan(make_queue(high()), [full(Runs("a")), make_worker("free")], 10.0)
    assert assigned(made) == ["high"]
    assert leaves(made) == []


@pytest.mark.parametrize(
    ("request_class", "running_class"),
    [(Priority.HIGH, Priority.HIGH), (Priority.NORMAL, Priority.HIGH)],
)
def test_only_across_a_gap_between_classes(request_class, running_class):
    """Neither equals nor superiors leave, though the request has waited long."""
    queue = make_queue(make_request("a", priority=request_class))
    assert leaves(plan(queue, [full(Runs("b", running_class))], 50.0)) == []


def test_a_moment_is_waited_first():
    """A slot may become free by itself; then the plan looks again."""
    queue, worker = make_queue(high(arrival_s=9.9)), full(Runs("a"))
    made = plan(queue, [worker], 10.0)
    assert leaves(made) == []
    assert made.look_again_s == pytest.approx(10.1)
    assert leaves(plan(queue, [worker], 10.11)) == ["a"]


def test_a_victim_has_run_for_its_quantum_which_doubles():
    """What has just begun goes on; what was chosen before goes on for longer, and in the end for good."""
    queue = make_queue(high())
    made = plan(queue, [full(Runs("a", since_s=9.8))], 10.0)
    assert leaves(made) == []
    assert made.look_again_s == pytest.approx(10.3)
    assert leaves(plan(queue, [full(Runs("a", since_s=9.0, num_preempted=2))], 10.0)) == []
    assert leaves(plan(queue, [full(Runs("a", since_s=8.0, num_preempted=2))], 10.0)) == ["a"]
    assert leaves(plan(queue, [full(Runs("a", num_preempted=3))], 10.0)) == []


def test_victims_whose_clients_saw_nothing_go_first_then_the_lowest_then_the_cheapest():
    """The order of preference, one after the other."""
    silent = Runs("silent", known_tokens=900, has_sent=False)
    low = Runs("low", Priority.BATCH, known_tokens=500)
    cheap, dear = Runs("cheap", known_tokens=10), Runs("dear", known_tokens=700)
    queue = make_queue(high())
    running = [dear, cheap, low, silent]
    for expected in ("silent", "low", "cheap", "dear"):
        assert leaves(plan(queue, [full(*running)], 10.0)) == [expected]
        running = [one for one in running if one.key != expected]


def test_the_worker_where_it_costs_least_is_chosen():
    """Over all workers, with blocks counted as well as slots; where it would never fit nobody leaves."""
    queue = make_queue(high(tokens=150, max_tokens=10))  # 10 blocks
    dear = full(Runs("a"), worker_id="dear", free_blocks=0, running=(Runs("a"), Runs("b")))
    cheap = full(Runs("c", has_sent=False, known_tokens=160), worker_id="cheap", free_blocks=0)
    small = full(Runs("d", known_tokens=1), worker_id="small", kv_blocks=5)
    other = full(Runs("e", Priority.HIGH), worker_id="other")
    assert leaves(plan(queue, [dear, cheap, small, other], 10.0)) == ["c"]
    assert leaves(plan(queue, [dear], 10.0)) == ["a", "b"]


def test_too_many_victims_are_none():
    """Nobody throws out half a batch for one request."""
    running = [Runs(str(n), known_tokens=16) for n in range(20)]
    queue = make_queue(high(tokens=300))
    assert leaves(plan(queue, [full(*running, free_blocks=0)], 10.0)) == []


def test_prefill_that_is_pending_is_no_reason():
    """What the worker computes already will be over sooner than anybody could leave."""
    queue = make_queue(high(tokens=400))
    assert leaves(plan(queue, [full(Runs("a"), pending_prefill_tokens=800)], 10.0)) == []


def test_room_that_is_being_made_is_for_the_first():
    """While one leaves for the first request, a second victim is asked for the second only."""
    queue = make_queue(high("h1"), high("h2"))
    worker = full(Runs("gone", is_leaving=True), Runs("a"), Runs("b"))
    made = plan(queue, [worker], 10.0)
    assert [(one.request_id, one.for_request_id) for one in made.preemptions] == [("a", "h2")]
    made = plan(queue, [full(Runs("x", is_leaving=True), Runs("y", is_leaving=True))], 10.0)
    assert leaves(made) == []


def test_each_of_several_gets_its_own_victim():
    """Two requests do not count on the same slot, and a plan asks for a few only."""
    queue = make_queue(*(high(f"h{n}") for n in range(9)))
    made = plan(queue, [full(*(Runs(str(n)) for n in range(9)))], 10.0)
    assert len(set(leaves(made))) == 4


def test_it_costs_a_share_of_what_is_computed_at_most():
    """With the budget spent nobody leaves, until enough was computed for others."""
    queue = make_queue(high(), recompute_burst_tokens=150, recompute_share=0.1)
    worker = full(Runs("a"), Runs("b"))
    assert leaves(plan(queue, [worker], 10.0)) == ["a"]
    assert leaves(plan(queue, [worker], 10.0)) == []
    queue.charge(Priority.NORMAL, "t", prompt_tokens=200, generated_tokens=299)
    assert leaves(plan(queue, [worker], 10.0)) == []
    queue.charge(Priority.NORMAL, "t", generated_tokens=2)
    assert leaves(plan(queue, [worker], 10.0)) == ["a"]


def test_what_is_not_urgent_waits_longer():
    """NORMAL requests drive BATCH out when they are late by any measure only."""
    queue = make_queue(make_request("n", arrival_s=1.0))
    worker = full(Runs("b", Priority.BATCH))
    assert leaves(plan(queue, [worker], 10.9)) == []
    assert leaves(plan(queue, [worker], 11.0)) == ["b"]


def test_who_runs_alone_stays():
    """A quarantine is not disturbed, and nobody would be let in."""
    assert leaves(plan(make_queue(high()), [full(Runs("a"), runs_alone=True)], 10.0)) == []


def test_nobody_leaves_for_what_expires():
    """A request that cannot make its deadline needs no room."""
    queue = make_queue(*(make_request(f"r{n}", tenant="x") for n in range(2)))
    queue.pace.look(0.0, is_backlogged=True)
    queue.pace.started(1)
    queue.pace.look(9.0, is_backlogged=True)
    for number in range(3):
        queue.add(high(f"h{number}", deadline_s=10.5, has_deadline=True))
    made = plan(queue, [full(Runs("a"), Runs("b"), Runs("c"))], 10.0)
    assert set(made.expired) == {"h1", "h2"}
    assert [one.for_request_id for one in made.preemptions] == ["h0"]


runs = st.builds(
    Runs,
    st.integers(0, 999).map(str),
    st.sampled_from(Priority),
    st.floats(0, 10),
    st.integers(1, 400),
    st.booleans(),
    st.integers(0, 4),
    st.booleans(),
)


@given(
    st.lists(st.tuples(st.sampled_from(Priority), st.integers(1, 400)), max_size=8),
    st.lists(st.lists(runs, max_size=6, unique_by=lambda one: one.key), max_size=3),
)
def test_preemptions_are_valid(waiting, fleet):
    """Every victim runs there, is of a lower class, had its quantum, is asked once, and for a request that waits."""
    queue = make_queue(*(high(f"q{n}", priority=p, tokens=t) for n, (p, t) in enumerate(waiting)))
    workers = [full(*running, worker_id=f"w{n}") for n, running in enumerate(fleet)]
    made = plan(queue, workers, 10.0)
    here = {(w.worker_id, one.key): one for w in workers for one in w.running}
    asked = [(one.worker_id, one.request_id) for one in made.preemptions]
    assert len(asked) == len(set(asked))
    for one in made.preemptions:
        victim = here[one.worker_id, one.request_id]
        assert victim.priority < waiting[int(one.for_request_id[1:])][0]
        assert not victim.is_leaving
        assert victim.num_preempted < 3
        assert 10.0 - victim.since_s >= 0.5 * 2**victim.num_preempted
        assert one.for_request_id not in assigned(made)
