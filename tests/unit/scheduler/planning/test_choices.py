"""A request of several choices takes a slot and a last block for each, all or none."""

import pytest

from tests.support.planning import carry_out, make_queue, make_request, make_worker


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
