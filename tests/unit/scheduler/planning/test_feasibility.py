"""Requests end as soon as they cannot make their deadlines."""

import pytest

from scheduler.planning.pace import Pace
from scheduler.planning.plan import plan
from tests.support.planning import assigned, carry_out, make_queue, make_request, make_worker

FULL = make_worker(free_seqs=0, num_running=8)


def urgent(request_id: str, deadline_s: float, **changes):
    """A request whose caller set a deadline."""
    return make_request(request_id, deadline_s=deadline_s, has_deadline=True, **changes)


def paced(queue, starts_per_s: float) -> None:
    """Let the queue have started so many per second for a while."""
    queue.pace.look(-10.0, is_backlogged=True)
    queue.pace.started(round(10 * starts_per_s))
    queue.pace.look(0.0, is_backlogged=False)


def test_a_wait_that_is_too_long_is_refused_at_once():
    """At 1 start per second the 40th has no chance within 5 s; without a deadline it waits."""
    queue = make_queue(*(make_request(f"r{n}", arrival_s=-1.0) for n in range(40)))
    paced(queue, 1.0)
    queue.add(urgent("no", 5.0, arrival_s=0.0, tenant="t", max_tokens=4))
    queue.remove("no")
    queue.add(urgent("no", 35.0, arrival_s=0.0))
    for number in range(200):
        queue.add(make_request(f"early{number}", arrival_s=-2.0))
    made = plan(queue, [FULL], 0.0)
    assert list(made.expired) == ["no"]
    assert (
        made.expired["no"] == "35.0 s are left for about 241.0 s in the queue and 0.0 s of prefill"
    )
    assert list(plan(queue, [FULL], 0.0).expired) == ["no"]


def test_an_estimate_may_be_wrong_by_half():
    """What would make it at twice the speed waits, and is looked at again."""
    queue = make_queue(*(make_request(f"r{n}", arrival_s=-1.0) for n in range(40)))
    paced(queue, 1.0)
    queue.add(urgent("yes", 25.0, arrival_s=0.0, tenant="t"))
    made = plan(queue, [FULL], 0.0)
    assert made.expired == {}
    assert made.look_again_s == 12.5


def test_the_time_for_the_prompt_counts_to_the_end():
    """Without any estimate of the wait, a prompt that would not be computed in time is refused in time."""
    queue = make_queue(urgent("long", 2.0, tokens=1000, arrival_s=0.0))
    queue.pace.prefilled(1000, 1.0)
    assert plan(queue, [FULL], 0.5).expired == {}
    assert plan(queue, [FULL], 1.0).expired == {"long": "1.0 s are left for 1.0 s of prefill"}
    assert assigned(plan(queue, [make_worker()], 1.0)) == []


@pytest.mark.parametrize(("now_s", "is_over"), [(1.5, False), (1.995, True), (2.5, True)])
def test_a_deadline_in_front_of_no_worker_says_so(now_s: float, is_over: bool):
    """Whether it is computed by the time that the prompt would take or has passed: the cause is told, not a sum."""
    queue = make_queue(urgent("one", 2.0, tokens=10, arrival_s=0.0))
    queue.pace.prefilled(1000, 1.0)
    why = "no worker serves the model"
    assert plan(queue, [], now_s).expired == ({"one": why} if is_over else {})
    queue = make_queue(urgent("other", 2.0, tokens=10, arrival_s=0.0, model_revision="r2"))
    why = "no worker serves what it needs: its revision or its numerics"
    here = [make_worker(model_revision="r1")]
    assert plan(queue, here, now_s).expired == ({"other": why} if now_s > 2.0 else {})


def test_what_starts_at_once_is_not_refused_for_its_wait():
    """A free worker is no estimate."""
    queue = make_queue(*(urgent(f"r{n}", 3.0, arrival_s=0.0) for n in range(6)))
    paced(queue, 1.0)
    assert len(carry_out(queue, make_worker(), now_s=0.0)) == 6


def test_without_a_deadline_of_ones_own_there_is_the_longest_life():
    """No estimate ends a request that did not ask for a deadline, or that has delivered something."""
    queue = make_queue(
        make_request("patient", deadline_s=5.0),
        urgent("started", 5.0, known_tokens=20, tenant="u"),
    )
    paced(queue, 0.1)
    assert plan(queue, [FULL], 1.0).expired == {}
    assert set(plan(queue, [FULL], 5.0).expired) == {"patient", "started"}


def test_workers_that_are_away_are_no_pace():
    """While all of them are started again nobody knows how long it takes, however many wait: nobody is refused for it."""
    queue = make_queue(*(make_request(f"r{n}", arrival_s=-1.0) for n in range(40)))
    paced(queue, 1.0)
    queue.add(urgent("urgent", 300.0, arrival_s=0.0))
    for now_s in range(150):
        assert plan(queue, [], float(now_s)).expired == {}
    assert plan(queue, [FULL], 150.0).expired == {}
    assert queue.pace.wait_s(9) == pytest.approx(10.0)


def test_a_standstill_is_no_pace():
    """Workers are here and start nothing: what that lasts is added for a moment, and then nobody knows."""
    pace = Pace()
    pace.look(0.0, is_backlogged=True)
    pace.started(100)
    pace.look(10.0, is_backlogged=True)
    usual_s = pace.wait_s(9)
    assert usual_s == pytest.approx(1.0, rel=0.5)
    pace.look(11.5, is_backlogged=True)
    assert pace.wait_s(9) == pytest.approx(usual_s + 1.5)
    pace.look(60.0, is_backlogged=True)
    assert pace.wait_s(9) is None
    pace.started(5)
    pace.look(60.5, is_backlogged=True)
    assert pace.is_known


def test_idle_time_says_nothing_about_the_pace():
    """Only what happens while requests wait is a measure; and nothing is said before a second of it."""
    pace = Pace()
    assert pace.wait_s(3) is None
    pace.look(0.0, is_backlogged=True)
    pace.started(4)
    pace.look(0.5, is_backlogged=True)
    assert pace.wait_s(3) is None
    pace.started(12)
    pace.look(2.0, is_backlogged=False)
    pace.look(100.0, is_backlogged=False)
    assert pace.wait_s(3) == pytest.approx(0.5, rel=0.1)
    assert pace.prefill_s(100) == 0.0


def test_a_standstill_gives_no_estimate():
    """Where nothing starts at all, nobody knows how long it takes."""
    pace = Pace()
    pace.look(0.0, is_backlogged=True)
    pace.look(60.0, is_backlogged=True)
    assert pace.wait_s(3) is None
