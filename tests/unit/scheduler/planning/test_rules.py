"""The planner's rules, one by one, by the plans they lead to."""

import pytest

from common.domain import Priority
from scheduler.planning.fit import Room
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.plan import plan
from scheduler.planning.settings import PlanningSettings
from tests.support.planning import assigned, carry_out, make_queue, make_request, make_worker

FULL = make_worker(free_seqs=0, num_running=8)


# 1 expiry


def test_expiry_is_found_anywhere_in_the_queue():
    """A request expires at its deadline wherever it stands, is named until it is removed, and is not assigned."""
    queue = make_queue(make_request("a"), make_request("b", deadline_s=5.0), make_request("c"))
    assert plan(queue, [FULL], 4.9).look_again_s == 5.0
    for _ in range(2):
        made = plan(queue, [make_worker()], 5.0)
        assert tuple(made.expired) == ("b",)
        assert assigned(made) == ["a", "c"]
    queue.remove("b")
    assert plan(queue, [FULL], 6.0).expired == {}


def test_without_time_limits_there_is_no_next_look():
    """An empty queue asks for no look."""
    assert plan(make_queue(), [make_worker()], 0.0).look_again_s is None


# 2 classes and ageing


def test_higher_classes_go_first():
    """Classes are served in order of importance, whatever the order of arrival."""
    queue = make_queue(*(make_request(p.name, priority=p) for p in Priority))
    assert carry_out(queue, make_worker()) == ["CRITICAL", "HIGH", "NORMAL", "BATCH"]


# 3 deadlines


def test_the_earliest_deadline_goes_first_inside_a_class():
    """EDF among deadlines; without a deadline by arrival; a near deadline passes those without."""
    queue = make_queue(
        make_request("plain", arrival_s=0.0),
        make_request("plain later", arrival_s=0.5),
        make_request("second", arrival_s=0.6, deadline_s=9.0, has_deadline=True),
        make_request("first", arrival_s=0.7, deadline_s=8.0, has_deadline=True),
    )
    assert carry_out(queue, make_worker()) == ["first", "second", "plain", "plain later"]


def test_a_far_deadline_costs_nothing():
    """A request with a deadline beyond its class's patience is ordered as one without."""
    queue = make_queue(
        make_request("far", arrival_s=0.0, deadline_s=800.0, has_deadline=True),
        make_request("plain", arrival_s=0.1),
    )
    assert carry_out(queue, make_worker()) == ["far", "plain"]


# 5 buckets


def test_a_batch_prefers_the_bucket_of_its_head():
    """Further picks are of the head's bucket as long as there are any, then by order."""
    queue = make_queue(
        *(make_request(f"r{n}", arrival_s=n / 100, tokens=50 if n % 2 else 200) for n in range(6))
    )
    assert carry_out(queue, make_worker()) == ["r0", "r2", "r4", "r1", "r3", "r5"]


def test_every_kth_pick_ignores_buckets():
    """With k = 2 every second pick is the head of the order."""
    queue = make_queue(
        *(
            make_request(f"r{n}", arrival_s=n / 100, tokens=200 if n < 5 and n else 50)
            for n in range(9)
        ),
        unbucketed_every=2,
    )
    assert carry_out(queue, make_worker()) == ["r0", "r5", "r1", "r6", "r2", "r7", "r3", "r8"]


def test_a_head_is_passed_at_most_k_times():
    """After K picks have passed the head it is next, whatever its bucket."""
    long = make_request("long", arrival_s=0.001, tokens=200)
    shorts = [make_request(f"s{n}", arrival_s=n / 1000, tokens=50) for n in (0, *range(2, 9))]
    queue = make_queue(long, *shorts, max_overtaken=3, unbucketed_every=100)
    assert carry_out(queue, make_worker())[:5] == ["s0", "s2", "s3", "s4", "long"]


def test_without_bounds_there_is_one_bucket():
    """Buckets can be switched off."""
    queue = make_queue(
        make_request("a", tokens=200),
        make_request("b", arrival_s=0.1, tokens=5),
        make_request("c", arrival_s=0.2, tokens=200),
        bucket_bounds=(),
    )
    made = plan(queue, [make_worker()], 1.0)
    assert assigned(made) == ["a", "b", "c"]
    assert made.assignments[0].reason == "worker idle, bucket all"


def test_the_last_bucket_has_no_bound():
    """A prompt longer than every bound has a bucket too."""
    made = plan(make_queue(make_request("a", tokens=9000)), [make_worker()], 1.0)
    assert made.assignments[0].reason == "worker idle, bucket >8192"


# 6 window


def test_an_idle_worker_is_served_at_once():
    """No window for a worker that has nothing to do."""
    queue = make_queue(make_request("a", arrival_s=1.0))
    assert carry_out(queue, make_worker(), now_s=1.0) == ["a"]


def test_a_busy_worker_waits_for_the_window():
    """Under load a fresh request waits until its window closes, and the plan says when that is."""
    queue, busy = make_queue(make_request("a", arrival_s=1.0)), make_worker(num_running=1)
    made = plan(queue, [busy], 1.005)
    assert made.assignments == ()
    assert made.look_again_s == 1.010
    made = plan(queue, [busy], 1.010)
    assert assigned(made) == ["a"]
    assert made.assignments[0].reason == "window closed, bucket <=64"


def test_the_window_is_that_of_the_oldest_candidate():
    """An urgent newcomer does not open the window again for those who have waited."""
    queue = make_queue(
        make_request("old", arrival_s=1.0),
        make_request("new", arrival_s=1.02, priority=Priority.CRITICAL),
    )
    assert carry_out(queue, make_worker(num_running=1), now_s=1.02) == ["new", "old"]


def test_a_full_bucket_does_not_wait():
    """The window ends early when the head's bucket fills what the worker can take."""
    queue = make_queue(make_request("a", arrival_s=1.0), make_request("b", arrival_s=1.001))
    busy = make_worker(num_running=1, free_seqs=2)
    made = plan(queue, [busy], 1.002)
    assert assigned(made) == ["a", "b"]
    assert made.assignments[0].reason == "bucket full, bucket <=64"


# 7 fit


def test_a_worker_gets_no_more_than_its_slots():
    """Slots bound a batch."""
    queue = make_queue(*(make_request(f"r{n}") for n in range(5)))
    assert len(carry_out(queue, make_worker(free_seqs=3))) == 3


def test_blocks_are_held_back_for_what_will_be_generated():
    """A request needs blocks for its known tokens and a reserve, which its remaining tokens bound."""
    queue = make_queue(
        make_request("a", tokens=16, max_tokens=16),  # 2 blocks
        make_request("b", arrival_s=0.1, tokens=16, max_tokens=1000),  # 9 blocks
        make_request("c", arrival_s=0.2, tokens=16, max_tokens=16),
    )
    assert carry_out(queue, make_worker(num_running=1, free_blocks=11)) == ["a", "b"]
    queue.add(make_request("b", arrival_s=0.1, tokens=16, max_tokens=1000))
    assert carry_out(queue, make_worker(num_running=1, free_blocks=8)) == ["c"]


def test_an_idle_worker_takes_what_fits_without_the_reserve():
    """Nothing more will become free on an idle worker, so the reserve keeps no request from it."""
    queue = make_queue(make_request("a", tokens=100, max_tokens=500))
    assert carry_out(queue, make_worker(free_blocks=7)) == ["a"]
    queue = make_queue(make_request("a", tokens=100, max_tokens=500))
    assert carry_out(queue, make_worker(free_blocks=6)) == []


def test_pending_prefill_stays_within_two_steps():
    """A worker's own queue is kept near empty, though an idle one takes a prompt of any length."""
    queue = make_queue(*(make_request(f"r{n}", tokens=400) for n in range(5)))
    assert len(carry_out(queue, make_worker())) == 2
    assert carry_out(queue, make_worker(num_running=1, pending_prefill_tokens=700)) == []
    queue = make_queue(make_request("long", tokens=7000))
    assert carry_out(queue, make_worker()) == ["long"]


def test_the_least_loaded_worker_is_served_first():
    """Requests spread over workers by load, not by name."""
    queue = make_queue(*(make_request(f"r{n}", arrival_s=n / 100) for n in range(3)))
    made = plan(queue, [make_worker("a", num_running=4), make_worker("b"), make_worker("c")], 1.0)
    assert {a.worker_id: len(a.request_ids) for a in made.assignments} == {"b": 2, "c": 1}


def test_draining_workers_get_nothing():
    """A worker that wants to leave gets no more work."""
    queue = make_queue(make_request("a"))
    assert plan(queue, [make_worker(draining=True)], 1.0).assignments == ()


def test_a_started_request_resumes_only_on_equal_numerics():
    """A fingerprint and a revision restrict where a request may go; others pass it."""
    queue = make_queue(
        make_request("started", fingerprint="other"),
        make_request("revised", arrival_s=0.1, model_revision="r2"),
        make_request("free", arrival_s=0.2, model_revision="r"),
    )
    assert carry_out(queue, make_worker()) == ["free"]
    assert carry_out(queue, make_worker(fingerprint="other")) == ["started"]
    assert carry_out(queue, make_worker(model_revision="")) == ["revised"]


def test_requests_that_do_not_want_to_be_held_are_refused_without_a_worker():
    """hold=false is refused when nobody serves it, unless it has expired or started."""
    queue = make_queue(
        make_request("held"),
        make_request("impatient", hold=False),
        make_request("expired", hold=False, deadline_s=0.5),
        make_request("started", hold=False, fingerprint="f"),
    )
    made = plan(queue, [make_worker(draining=True)], 1.0)
    assert made.refused == ("impatient",)
    assert tuple(made.expired) == ("expired",)
    assert plan(queue, [FULL], 1.0).refused == ()
    for request_id in ("impatient", "expired", "started", "held"):
        queue.remove(request_id)
    assert plan(queue, [], 1.0).refused == ()


# A head that does not fit


def _large_and_small(**settings):
    large = make_request("large", tokens=320, max_tokens=16)  # 21 blocks
    small = [make_request(f"s{n}", arrival_s=0.1 + n / 100) for n in range(20)]  # 2 blocks each
    return make_queue(large, *small, **settings)


def test_a_head_that_does_not_fit_is_passed_at_most_k_times():
    """What fits goes past it K times; then its worker is kept until it fits."""
    queue = _large_and_small(max_overtaken=3)
    busy = make_worker(num_running=4, free_blocks=20)
    assert carry_out(queue, busy) == ["s0", "s1", "s2"]
    assert carry_out(queue, busy) == []
    assert carry_out(queue, make_worker(num_running=1, free_blocks=22))[0] == "large"


def test_only_one_worker_is_kept_for_a_head():
    """The worker with the most room is kept; it stays the same one, and the others go on."""
    queue = _large_and_small(max_overtaken=0)
    near = make_worker("near", num_running=3, free_blocks=16)
    far = make_worker("far", num_running=3, free_blocks=8)
    made = plan(queue, [near, far], 1.0)
    assert [a.worker_id for a in made.assignments] == ["far"]
    made = plan(queue, [make_worker("near", num_running=3, free_blocks=4), far], 1.0)
    assert [a.worker_id for a in made.assignments] == ["far"]
    made = plan(queue, [far], 1.0)
    assert made.assignments == ()


def test_no_worker_is_kept_for_what_would_never_fit():
    """A request larger than every pool waits for a larger worker and blocks nobody."""
    queue = _large_and_small(max_overtaken=0)
    idle = make_worker("idle", free_blocks=10, kv_blocks=10)
    busy = make_worker("busy", num_running=1, free_blocks=5, kv_blocks=10)
    assert {a.worker_id for a in plan(queue, [idle, busy], 1.0).assignments} == {"idle", "busy"}


def test_a_worker_of_unknown_size_may_be_kept():
    """Without a pool size a busy worker counts as large enough."""
    queue = _large_and_small(max_overtaken=0)
    busy = make_worker(num_running=1, free_blocks=5, kv_blocks=0)
    assert plan(queue, [busy], 1.0).assignments == ()


def test_a_bucket_whose_first_does_not_fit_yields_to_the_head():
    """The preferred bucket is left when its first request does not fit and the head does."""
    queue = make_queue(
        make_request("first", tokens=40, max_tokens=8),  # 3 blocks
        make_request("head", arrival_s=0.1, tokens=70, max_tokens=8),  # 5 blocks
        make_request("wide", arrival_s=0.2, tokens=40, max_tokens=100),  # 9 blocks
    )
    assert carry_out(queue, make_worker(free_blocks=8)) == ["first", "head"]


def test_settings_refuse_nonsense():
    """Values that make no sense are our bug at start, not a surprise later."""
    with pytest.raises(AssertionError):
        PlanningSettings(bucket_bounds=(128, 64))
    with pytest.raises(AssertionError):
        PlanningSettings(patience_s={Priority.HIGH: 1.0})


def test_workers_of_different_kinds_share_what_any_may_run():
    """A request is assigned once, even if workers with different fingerprints could run it."""
    queue = make_queue(
        make_request("free"),
        make_request("one", arrival_s=0.1, fingerprint="f"),
        make_request("two", arrival_s=0.2, fingerprint="g"),
    )
    workers = [
        make_worker("v"),
        make_worker("w", fingerprint="g"),
        make_worker("x", fingerprint="h"),
    ]
    made = plan(queue, workers, 1.0)
    assert {a.worker_id: a.request_ids for a in made.assignments} == {
        "v": ("free", "one"),
        "w": ("two",),
    }


def test_a_room_without_slots_fits_nothing():
    """Fit is a question that can be asked of any worker."""
    assert not Room(FULL, PlanningSettings(), OutputLengths(PlanningSettings()), {}).fits(
        make_request("a")
    )


# Overdue


def test_every_kth_pick_is_for_what_is_overdue_longest():
    """Whatever classes and tenants say: who has lost patience gets every k-th pick, and no other."""
    queue = make_queue(
        make_request("batch", priority=Priority.BATCH, tenant="heavy"),
        make_request("normal", arrival_s=1.0, tenant="heavy"),
        *(
            make_request(f"n{n}", priority=Priority.CRITICAL, tenant=f"t{n}", arrival_s=60.9)
            for n in range(8)
        ),
        overdue_every=3,
        fairness_quantum_tokens=1,
    )
    queue.charge(Priority.NORMAL, "heavy", generated_tokens=10_000)
    made = plan(queue, [make_worker()], 61.0)
    assert assigned(made) == ["n0", "n1", "normal", "n2", "n3", "batch", "n4", "n5"]
    assert made.assignments[0].picks[2].why == "overdue longest"
    assert [pick.is_promoted for pick in made.assignments[0].picks][:3] == [False, False, True]


def test_nobody_is_overdue_before_the_patience_of_its_class_is_over():
    """Until then a class is a class."""
    queue = make_queue(
        make_request("batch", priority=Priority.BATCH), make_request("n"), overdue_every=1
    )
    assert carry_out(queue, make_worker(free_seqs=1), now_s=29.0) == ["n"]
    queue.add(make_request("n", arrival_s=59.0))
    assert carry_out(queue, make_worker(free_seqs=1), now_s=59.9) == ["n"]
    queue.add(make_request("n", arrival_s=59.0))
    assert carry_out(queue, make_worker(free_seqs=1), now_s=60.0) == ["batch"]


def test_an_overdue_request_that_does_not_fit_costs_no_pick():
    """The pick goes to the order then; and one that nobody here may serve is left alone."""
    queue = make_queue(
        make_request("large", tokens=320), make_request("other", fingerprint="x"), overdue_every=1
    )
    plan(queue, [FULL], 200.0)
    queue.add(make_request("small", arrival_s=200.0))
    assert carry_out(queue, make_worker(num_running=1, free_blocks=5), now_s=201.0) == ["small"]
    assert queue.remove("large") is not None
    assert queue.remove("other") is not None
    assert len(queue) == 0
