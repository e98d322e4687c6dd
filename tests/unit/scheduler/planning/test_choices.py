"""A request of several choices takes a slot and a last block for each, all or none."""

import pytest

from common.domain import Priority
from scheduler.planning.plan import plan
from tests.support.planning import Runs, carry_out, make_queue, make_request, make_worker


@pytest.mark.parametrize(("free_seqs", "picked"), [(3, ["b"]), (4, ["a"]), (5, ["a", "b"])])
def test_slots(free_seqs: int, picked: list[str]) -> None:
    """Four choices go only where four slots are free; a smaller request may go first."""
    queue = make_queue(make_request("a", num_choices=4), make_request("b"))
    assert carry_out(queue, make_worker(free_seqs=free_seqs, num_running=1)) == picked


def test_blocks() -> None:
    """An idle worker takes what fits at its beginning, the last blocks of all choices counted."""
    request = make_request("a", tokens=31, num_choices=4)
    assert carry_out(make_queue(request), make_worker(free_blocks=4)) == []
    assert carry_out(make_queue(request), make_worker(free_blocks=5)) == ["a"]


def test_several_choices_are_as_long_as_so_many_answers():
    """What is held back for the answer is held back for each of them."""
    request = make_request("a", tokens=32, max_tokens=400, num_choices=4)
    queue = make_queue(request, reserve_tokens=100)
    # Two blocks of the prompt, 25 of the answers, three more because each ends in a block of its own.
    busy = {"num_running": 1, "free_seqs": 8}
    assert carry_out(queue, make_worker(free_blocks=29, **busy)) == []
    assert carry_out(queue, make_worker(free_blocks=30, **busy)) == ["a"]


def test_a_worker_is_as_busy_as_its_sequences():
    """Behind four choices on one worker, the next request goes to the other."""
    queue = make_queue(
        make_request("a", num_choices=4),
        make_request("b", arrival_s=0.1),
        make_request("c", arrival_s=0.2),
    )
    made = plan(queue, [make_worker("v"), make_worker("w")], 1.0)
    assert [batch.request_ids for batch in made.assignments] == [("a",), ("b", "c")]


def test_a_victim_frees_a_slot_for_each_of_its_choices():
    """One with four makes room for three."""
    waiting = make_request("high", priority=Priority.HIGH, arrival_s=9.5, num_choices=3)
    running = (Runs("one"), Runs("four", num_seqs=4, known_tokens=50))
    worker = make_worker(
        free_seqs=0, num_running=5, running=running, lowest_running=Priority.NORMAL
    )
    assert [one.request_id for one in plan(make_queue(waiting), [worker], 10.0).preemptions] == [
        "four"
    ]
