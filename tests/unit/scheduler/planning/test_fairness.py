"""Who is served among tenants: by the plans, and by the counters' bound."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import Priority
from scheduler.planning import fairness
from scheduler.planning.fairness import Fairness
from scheduler.planning.plan import plan
from scheduler.planning.settings import PlanningSettings
from tests.support.planning import assigned, carry_out, make_queue, make_request, make_worker

NORMAL = Priority.NORMAL


def of(tenant: str, count: int, **changes):
    """Requests of a tenant."""
    return [make_request(f"{tenant}{n}", tenant=tenant, **changes) for n in range(count)]


def test_the_tenant_that_was_served_least_goes_first():
    """Who has had more than a quantum less comes first, though the other's requests are older."""
    queue = make_queue(
        *of("a", 3), *of("b", 3, arrival_s=0.5), max_overtaken=9, fairness_quantum_tokens=8
    )
    queue.charge(NORMAL, "a", generated_tokens=4)
    assert carry_out(queue, make_worker(free_seqs=2)) == ["b0", "a0"]


def test_within_a_quantum_the_due_time_decides():
    """Small differences do not undo deadlines and arrival."""
    queue = make_queue(*of("a", 1), *of("b", 1, arrival_s=0.5))
    queue.charge(NORMAL, "a", generated_tokens=100)
    assert carry_out(queue, make_worker()) == ["a0", "b0"]


def test_the_class_goes_before_the_share():
    """A tenant that was served much is still first with what is more important."""
    queue = make_queue(*of("a", 1, priority=Priority.HIGH), *of("b", 1))
    queue.charge(Priority.HIGH, "a", generated_tokens=100_000)
    assert carry_out(queue, make_worker()) == ["a0", "b0"]


def test_a_prompt_is_charged_once_and_within_a_plan():
    """The picks of one plan alternate by what their prompts cost; a resumed request costs its tenant nothing more."""
    queue = make_queue(
        *of("a", 3, tokens=60), *of("b", 3, tokens=60, arrival_s=0.5), fairness_quantum_tokens=50
    )
    assert carry_out(queue, make_worker()) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert queue.fairness.served(NORMAL, "a") == queue.fairness.served(NORMAL, "b") == 180
    queue.add(make_request("again", tenant="a", is_charged=True, known_tokens=70))
    assert carry_out(queue, make_worker()) == ["again"]
    assert queue.fairness.served(NORMAL, "a") == 180


def test_weights_are_shares():
    """A tenant of weight 3 is served three times as much."""
    queue = make_queue(
        *of("a", 40, tokens=50),
        *of("b", 40, tokens=50, arrival_s=0.5),
        tenant_weights={"a": 3.0},
        fairness_quantum_tokens=1,
    )
    picked = carry_out(queue, make_worker(free_seqs=20, max_batch_tokens=5000))
    assert Counter(request_id[0] for request_id in picked) == {"a": 15, "b": 5}


def test_idle_time_is_no_credit():
    """Who comes back is lifted to the least served tenant that waits, and takes turns with it."""
    queue = make_queue(*of("a", 4, tokens=60), fairness_quantum_tokens=50)
    queue.charge(NORMAL, "a", generated_tokens=500)
    for request in of("b", 4, tokens=60, arrival_s=0.5):
        queue.add(request)
    assert carry_out(queue, make_worker(free_seqs=4)) == ["a0", "b0", "a1", "b1"]


def test_whoever_comes_first_after_a_pause_stands_where_the_last_one_left():
    """An empty queue is no credit either."""
    queue = make_queue(*of("a", 1))
    carry_out(queue, make_worker())
    queue.charge(NORMAL, "a", generated_tokens=5000)
    queue.add(make_request("b", tenant="b"))
    assert queue.fairness.served(NORMAL, "b") == queue.fairness.served(NORMAL, "a")


def test_a_charge_moves_a_waiting_tenant_back():
    """What is generated counts while others wait."""
    queue = make_queue(*of("a", 2), *of("b", 1, arrival_s=0.5), fairness_quantum_tokens=8)
    assert carry_out(queue, make_worker(free_seqs=1)) == ["a0"]
    queue.charge(NORMAL, "a", generated_tokens=8)
    assert carry_out(queue, make_worker(free_seqs=1)) == ["b0"]


def test_counters_of_tenants_that_left_are_forgotten(monkeypatch):
    """Memory is bounded by who waits or has had more than the floor."""
    monkeypatch.setattr(fairness, "_MAX_IDLE", 2)
    counters = Fairness(PlanningSettings(fairness_quantum_tokens=1))
    for number in range(10):
        tenant = f"t{number}"
        counters.join(NORMAL, tenant, lambda: None)
        counters.charge(NORMAL, tenant, 10.0)
        counters.leave(NORMAL, tenant)
    assert counters.served(NORMAL, "t0") == counters.served(NORMAL, "t7") == 90.0
    assert counters.served(NORMAL, "t9") == 100.0


def test_another_tenant_passes_when_nothing_of_the_first_fits():
    """A tenant whose requests are too large for now does not hold up the others, beyond K times."""
    queue = make_queue(
        make_request("large", tenant="a", tokens=320),
        *of("b", 9, arrival_s=0.5),
        max_overtaken=3,
    )
    made = plan(queue, [make_worker(num_running=3, free_blocks=20)], 1.0)
    assert assigned(made) == ["b0", "b1", "b2"]
    assert {pick.why for pick in made.assignments[0].picks} == {"first that fits"}


def test_settings_refuse_shares_of_nothing():
    """A weight of 0 would be a division by it."""
    with pytest.raises(AssertionError):
        PlanningSettings(tenant_weights={"a": 0.0})


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 80), st.integers(0, 2)),
        min_size=6,
        max_size=30,
    ),
    st.integers(1, 500),
    st.sampled_from([0.5, 1.0, 4.0]),
)
@settings(max_examples=60, deadline=None)
def test_backlogged_tenants_never_drift_apart(stream, quantum, weight):
    """Two tenants that always wait differ by at most what one start of each costs, and a quantum."""
    queue = make_queue(
        max_overtaken=0,
        unbucketed_every=1,
        overdue_every=10**9,
        fairness_quantum_tokens=quantum,
        tenant_weights={"a": weight},
        patience_s=dict.fromkeys(Priority, 10**6),
    )
    # A start is charged with its own prompt and whatever output comes at that moment.
    largest = max(one[0] for one in stream) + 2 * max(one[1] for one in stream)
    largest /= min(weight, 1.0)
    number = 0
    for tokens, generated, _ in stream:
        for tenant in "ab":
            while queue.by_tenant.get(tenant, 0) < 3:
                queue.add(make_request(f"{tenant}{number}", tenant=tenant, tokens=tokens))
                number += 1
        (picked,) = carry_out(queue, make_worker(free_seqs=1))
        queue.charge(NORMAL, picked[0], generated_tokens=generated)
        served = [queue.fairness.served(NORMAL, tenant) for tenant in "ab"]
        assert abs(served[0] - served[1]) <= largest + quantum


_SLOTS = 3


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, _SLOTS), st.integers(1, 40)),
        min_size=1,
        max_size=20,
    ),
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, _SLOTS), st.integers(1, 40)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 500),
    st.sampled_from([0.5, 1.0, 4.0]),
)
@settings(max_examples=25, deadline=None)
def test_several_choices_keep_the_bound(of_a, of_b, quantum, weight):
    """However many choices each asks for: a quantum, one prompt, and what all slots generate for one of them.

    Who is behind gets the next place, though all of its choices must fit together and a smaller request would fit now.
    """
    queue = make_queue(
        max_overtaken=0,
        unbucketed_every=1,
        overdue_every=10**9,
        fairness_quantum_tokens=quantum,
        tenant_weights={"a": weight},
        patience_s=dict.fromkeys(Priority, 10**6),
    )
    everything = [*of_a, *of_b]
    largest = max(one[0] for one in everything) + 2 * _SLOTS * max(one[2] for one in everything)
    bound = largest / min(weight, 1.0) + quantum
    streams = {"a": itertools.cycle(of_a), "b": itertools.cycle(of_b)}
    numbers = itertools.count()
    asked: dict[str, tuple[int, int]] = {}
    running: dict[str, tuple[int, int]] = {}
    for _ in range(60):
        for tenant, stream in streams.items():
            while queue.by_tenant.get(tenant, 0) < 3:
                tokens, choices, left = next(stream)
                request_id = f"{tenant}{next(numbers)}"
                asked[request_id] = choices, left
                queue.add(
                    make_request(request_id, tenant=tenant, tokens=tokens, num_choices=choices)
                )
        used = sum(choices for choices, _ in running.values())
        worker = make_worker(
            free_seqs=_SLOTS - used, num_running=used, max_batch_tokens=10**4, kv_blocks=0
        )
        running |= {request_id: asked.pop(request_id) for request_id in carry_out(queue, worker)}
        for request_id, (choices, _) in running.items():
            queue.charge(NORMAL, request_id[0], generated_tokens=choices)
        running = {name: (n, left - 1) for name, (n, left) in running.items() if left > 1}
        served = [queue.fairness.served(NORMAL, tenant) for tenant in "ab"]
        assert abs(served[0] - served[1]) <= bound


_BLOCKS = 20


@given(
    st.lists(st.integers(150, 300), min_size=1, max_size=10),
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=10),
    st.integers(50, 200),
    st.sampled_from([500, 1_000]),
)
@settings(max_examples=10, deadline=None)
def test_who_needs_much_room_is_not_left_behind_for_ever(of_large, of_small, quantum, ahead):
    """Small requests that always fit get ahead of large ones that seldom do by no more than is allowed, and what runs.

    Without the bound the large ones get one start for every K of the small ones, whatever those have had: K is so large here
    that it bounds nothing.
    """
    queue = make_queue(
        max_overtaken=10**6,
        unbucketed_every=1,
        overdue_every=10**9,
        fairness_quantum_tokens=quantum,
        max_ahead_tokens=ahead,
        reserve_tokens=1,
        patience_s=dict.fromkeys(Priority, 10**6),
    )
    slots = 8
    largest_small = max(tokens for tokens, _ in of_small)
    longest = max(left for _, left in of_small)
    # Beyond the bound nothing of the small one starts; what has started by then goes on to its end.
    bound = ahead + 2 * quantum + slots * (largest_small + 2 * longest)
    prompts = {"a": itertools.cycle((n, 3) for n in of_large), "b": itertools.cycle(of_small)}
    numbers = itertools.count()
    waiting: dict[str, tuple[int, int]] = {}
    running: dict[str, tuple[int, int]] = {}
    for _ in range(200):
        for tenant, stream in prompts.items():
            while queue.by_tenant.get(tenant, 0) < slots:
                tokens, left = next(stream)
                request_id = f"{tenant}{next(numbers)}"
                waiting[request_id] = tokens, left
                queue.add(make_request(request_id, tenant=tenant, tokens=tokens, max_tokens=1))
        used = sum(-(-(tokens + 1) // 16) for tokens, _ in running.values())
        worker = make_worker(
            free_seqs=slots - len(running),
            num_running=len(running),
            free_blocks=_BLOCKS - used,
            kv_blocks=_BLOCKS,
            max_batch_tokens=10**4,
        )
        if running or queue:
            running |= {name: waiting.pop(name) for name in carry_out(queue, worker)}
        for name in running:
            queue.charge(NORMAL, name[0], generated_tokens=1)
        running = {name: (n, left - 1) for name, (n, left) in running.items() if left > 1}
        served = {tenant: queue.fairness.served(NORMAL, tenant) for tenant in "ab"}
        assert served["b"] - served["a"] <= bound
