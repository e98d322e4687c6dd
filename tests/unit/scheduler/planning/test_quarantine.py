"""Who runs alone, by the plans it leads to."""

from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import Priority
from scheduler.planning.plan import plan
from tests.support.planning import assigned, carry_out, make_queue, make_request, make_worker

BUSY = make_worker(num_running=3)


def suspect(request_id: str, **changes):
    """A request under which workers died."""
    return make_request(request_id, alone=True, **changes)


def crowd(count: int, **changes):
    """Requests that may run beside others."""
    return [make_request(f"r{n}", arrival_s=n / 100, **changes) for n in range(count)]


def test_a_suspect_takes_an_idle_worker_for_itself():
    """Nothing is assigned beside it, not even another suspect; the reason says so."""
    queue = make_queue(suspect("a"), suspect("b", arrival_s=0.1))
    made = plan(queue, [make_worker()], 1.0)
    assert [batch.request_ids for batch in made.assignments] == [("a",)]
    assert made.assignments[0].reason == "quarantine, alone, bucket <=64"


def test_nothing_joins_what_runs_alone():
    """A worker that runs a suspect gets nothing, however much room it has; the others go on."""
    queue = make_queue(*crowd(4), suspect("s"))
    alone = make_worker("a", num_running=1, runs_alone=True)
    assert plan(queue, [alone], 1.0).assignments == ()
    made = plan(queue, [alone, make_worker("b", num_running=5, free_seqs=3)], 1.0)
    assert {batch.worker_id for batch in made.assignments} <= {"b"}


def test_idle_workers_that_nobody_waits_for_take_a_suspect_each():
    """Without other work every idle worker is spare: suspects do not wait for one another."""
    queue = make_queue(*(suspect(f"s{n}", arrival_s=n / 10) for n in range(3)))
    made = plan(queue, [make_worker("a"), make_worker("b"), BUSY], 1.0)
    assert {b.worker_id: b.request_ids for b in made.assignments} == {"a": ("s0",), "b": ("s1",)}


def test_suspects_go_in_the_order_of_the_queue():
    """Class first, then due time; who has expired is not placed."""
    queue = make_queue(
        suspect("later", arrival_s=0.5),
        suspect("normal"),
        suspect("high", arrival_s=0.9, priority=Priority.HIGH),
        suspect("late", deadline_s=0.5),
    )
    for expected in ("high", "normal", "later"):
        assert carry_out(queue, make_worker()) == [expected]
    assert plan(queue, [make_worker()], 1.0).expired == {
        "late": "the deadline passed in the queue"
    }


def test_under_load_one_worker_is_kept_until_it_is_idle():
    """The one with the least to do gets nothing more; when it is idle the suspect runs there, the others go on."""
    queue = make_queue(suspect("s"), suspect("t", arrival_s=0.1), *crowd(9))
    near = make_worker("near", num_running=1)
    far = make_worker("far", num_running=3, free_seqs=2)
    assert {b.worker_id for b in plan(queue, [near, far], 1.0).assignments} == {"far"}
    made = plan(queue, [make_worker("near", num_running=5), far], 1.5)
    assert {b.worker_id for b in made.assignments} == {"far"}, "it stays the same one"
    made = plan(queue, [make_worker("near"), far], 2.0)
    assert {b.worker_id: b.request_ids for b in made.assignments}["near"] == ("s",)


def test_behind_a_run_the_others_come_first_for_as_long():
    """The only worker was kept for 3 s: for 3 s it serves the others, then it is kept again; the plan says when."""
    queue = make_queue(suspect("s"), suspect("t", arrival_s=0.1), *crowd(30))
    assert carry_out(queue, BUSY, now_s=10.0) == []
    assert carry_out(queue, make_worker(), now_s=11.0) == ["s"]
    assert carry_out(queue, make_worker(num_running=1, runs_alone=True), now_s=12.0) == []
    assert carry_out(queue, make_worker(free_seqs=2), now_s=13.0) == ["r0", "r1"]
    assert plan(queue, [make_worker(num_running=8, free_seqs=0)], 14.0).look_again_s == 16.0
    assert carry_out(queue, make_worker(num_running=1, free_seqs=1), now_s=15.9) == ["r2"]
    assert carry_out(queue, make_worker(num_running=1), now_s=16.0) == []
    assert carry_out(queue, make_worker(), now_s=17.0) == ["t"]


def test_a_worker_that_is_kept_and_leaves_is_replaced():
    """A kept worker that drains or dies is given up, and another one is kept at once."""
    queue = make_queue(suspect("s"), *crowd(9))
    other = make_worker("b", num_running=6)
    assert {x.worker_id for x in plan(queue, [BUSY, other], 1.0).assignments} == {"b"}
    gone = make_worker(num_running=3, draining=True)
    assert plan(queue, [gone, other], 1.1).assignments == ()


def test_nobody_needs_the_kept_worker_any_more():
    """The suspect was cancelled while the worker emptied: the others get it at once."""
    queue = make_queue(suspect("s"), *crowd(3))
    assert carry_out(queue, BUSY) == []
    queue.remove("s")
    assert carry_out(queue, BUSY) == ["r0", "r1", "r2"]


def test_a_kept_worker_waits_for_the_end_of_its_run():
    """While one suspect runs on the kept worker, no second worker is kept for the next suspect."""
    queue = make_queue(suspect("s"), suspect("t", arrival_s=0.1), *crowd(20))
    other = make_worker("x", num_running=3, free_seqs=1)
    made = carry_out(queue, make_worker(), other, now_s=1.0)
    assert "s" in made
    running = make_worker(num_running=1, runs_alone=True)
    assert carry_out(queue, running, other, now_s=2.0) == ["r1"]


def test_a_suspect_goes_only_where_it_may_and_fits():
    """Fingerprint, revision and blocks hold for suspects too; what no worker could take keeps none."""
    queue = make_queue(
        suspect("other numerics", fingerprint="g"),
        suspect("large", arrival_s=0.1, tokens=20_000),
        make_request("r", arrival_s=0.2),
    )
    assert carry_out(queue, make_worker()) == ["r"]
    assert carry_out(queue, make_worker()) == []
    assert carry_out(queue, make_worker(fingerprint="g")) == ["other numerics"]


def test_an_idle_worker_without_credit_is_kept_for_a_suspect():
    """What its last message says is free counts: it is kept until it says that there is room."""
    queue = make_queue(suspect("s", tokens=160), make_request("r"))
    assert carry_out(queue, make_worker(free_seqs=0)) == []
    assert carry_out(queue, make_worker()) == ["s"]


def test_a_suspect_that_is_not_to_be_held_is_refused_without_a_worker():
    """hold=false means the same for suspects."""
    queue = make_queue(suspect("s", hold=False))
    assert plan(queue, [], 1.0).refused == ("s",)


@given(
    st.integers(0, 4),
    st.integers(0, 40),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_everybody_is_served_and_suspects_alone(num_suspects, num_others, lengths, random):
    """Run to the end on random workers: each request is served once, a suspect never beside anybody."""
    waiting = [suspect(f"s{n}", arrival_s=random.random()) for n in range(num_suspects)]
    waiting += [make_request(f"r{n}", arrival_s=random.random()) for n in range(num_others)]
    queue, running, served = make_queue(*waiting), {n: {} for n in range(len(lengths))}, []
    for moment in range(2000):
        now_s = 1.0 + moment
        for mine in running.values():
            for request_id in [r for r, end_s in mine.items() if end_s <= now_s]:
                del mine[request_id]
        workers = [
            make_worker(
                str(n),
                num_running=len(mine),
                free_seqs=4 - len(mine),
                runs_alone=any(r.startswith("s") for r in mine),
            )
            for n, mine in running.items()
        ]
        made = plan(queue, workers, now_s)
        for batch in made.assignments:
            mine = running[int(batch.worker_id)]
            for request_id in batch.request_ids:
                queue.remove(request_id)
                served.append(request_id)
                mine[request_id] = now_s + random.choice(lengths)
            assert len(mine) == 1 or not any(r.startswith("s") for r in mine)
        if not queue:
            break
    assert sorted(served) == sorted(assigned_ids(waiting))


def assigned_ids(waiting) -> list[str]:
    """Names of requests."""
    return [request.request_id for request in waiting]


def test_a_plan_without_work_forgets_a_run_that_is_over():
    """The end of a run is seen when it happens, also when nothing waits: no rest is reckoned from later."""
    queue = make_queue(suspect("s"), make_request("r"))
    assert carry_out(queue, make_worker(), now_s=1.0) == ["s"]
    queue.remove("r")
    assert queue.kept.is_running
    assert assigned(plan(queue, [make_worker()], 2.0)) == []
    assert not queue.kept.is_running
    queue.add(suspect("t"))
    queue.add(make_request("u"))
    assert carry_out(queue, make_worker(), now_s=3.5) == ["t"]
