"""Rule 10: who waits for workers that are all gone waits for a while only."""

from scheduler.planning.plan import Plan, plan
from scheduler.planning.queue import WaitingQueue
from tests.support.planning import assigned, make_queue, make_request, make_worker

WAIT_S = 120.0
OLD = make_request("old", model_revision="old")
NEWER = make_worker(model_revision="new", fingerprint="new")
OLDER = make_worker("o", model_revision="old")


def planned(queue: WaitingQueue, now_s: float, *workers) -> Plan:
    return plan(queue, workers, now_s)


def test_a_revision_whose_workers_have_left_is_waited_for():
    """While others serve the model; then the request ends, and is named until it is removed."""
    queue = make_queue(OLD, make_request("any"))
    first = planned(queue, 10.0, NEWER)
    assert assigned(first) == ["any"]
    assert (first.given_up, first.look_again_s) == ((), 10.0 + WAIT_S)
    assert planned(queue, 10.0 + WAIT_S - 0.1, NEWER).given_up == ()
    for now_s in (10.0 + WAIT_S, 11.0 + WAIT_S):
        late = planned(queue, now_s, NEWER)
        assert late.given_up == ("old",)
        assert late.look_again_s == OLD.deadline_s
        assert "old" not in assigned(late)
    queue.remove("old")
    assert planned(queue, 12.0 + WAIT_S, NEWER).given_up == ()


def test_without_any_worker_a_revision_waits_for_its_deadline():
    """Whoever comes may serve it; only from then on somebody else serves the model."""
    queue = make_queue(OLD)
    assert planned(queue, 0.0).look_again_s == OLD.deadline_s
    assert planned(queue, 500.0).given_up == ()
    assert planned(queue, 501.0, NEWER).given_up == ()
    assert planned(queue, 501.0 + WAIT_S, NEWER).given_up == ("old",)


def test_a_worker_that_comes_back_begins_the_wait_anew():
    """A restart is shorter than the wait, and the next one is another one."""
    queue = make_queue(OLD)
    planned(queue, 0.0, NEWER)
    full = make_worker("o", model_revision="old", free_seqs=0, num_running=8)
    assert planned(queue, 100.0, NEWER, full).given_up == ()
    assert planned(queue, 130.0, NEWER).given_up == ()
    assert planned(queue, 250.0, NEWER).given_up == ("old",)


def test_a_worker_that_leaves_serves_no_more():
    """It takes nothing new: the wait has begun."""
    queue = make_queue(OLD)
    leaving = make_worker("o", model_revision="old", draining=True)
    planned(queue, 0.0, NEWER, leaving)
    assert planned(queue, WAIT_S, NEWER, leaving).given_up == ("old",)


def test_what_has_started_waits_for_equal_numerics_only_so_long():
    """Whether others serve the model or not: nothing else can go on with it."""
    started = make_request("s", known_tokens=12, fingerprint="old", model_revision="old")
    queue = make_queue(started)
    assert planned(queue, 0.0).look_again_s == WAIT_S
    assert planned(queue, WAIT_S).given_up == ("s",)


def test_an_end_is_told_once():
    """What expires or did not want to wait is not given up beside."""
    queue = make_queue(
        make_request("late", model_revision="old", deadline_s=WAIT_S),
        make_request("impatient", model_revision="old", hold=False),
        OLD,
    )
    planned(queue, 0.0, NEWER)
    made = planned(queue, WAIT_S, NEWER)
    assert (tuple(made.expired), made.refused, made.given_up) == (
        ("late",),
        ("impatient",),
        ("old",),
    )


def test_who_is_served_is_not_given_up():
    """However long it waits."""
    queue = make_queue(OLD, make_request("b", arrival_s=1.0, model_revision="old"))
    full = make_worker("o", model_revision="old", free_seqs=0, num_running=8)
    planned(queue, 0.0, NEWER, full)
    assert planned(queue, 500.0, NEWER, full).given_up == ()
    assert assigned(planned(queue, 501.0, NEWER, OLDER)) == ["old", "b"]
