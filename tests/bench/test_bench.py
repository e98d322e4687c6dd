"""The benchmark's own arithmetic; its figures are for people to judge."""

from tests.bench.costs import Costs, per_token_us
from tests.bench.planner import measure


def test_costs_are_split_over_tokens():
    """CPU between two readings, in microseconds per token, with the sum over the services."""
    before, after = {"client": 1.0, "redis": 2.0}, {"client": 1.5, "redis": 2.1}
    spent = per_token_us(before, after, tokens=1000)
    assert {name: round(us) for name, us in spent.items()} == {
        "client": 500,
        "redis": 100,
        "all": 600,
    }


def test_this_process_is_always_measured():
    """Against a target elsewhere at least the client's cost is known."""
    costs = Costs(None)
    assert list(costs.cpu_s()) == ["client"]
    assert costs.peak_mb() == {}


def test_every_round_of_the_planner_fills_its_workers():
    """With a long queue each plan assigns what the workers can take, so the cost is divided by real work."""
    assert measure(200, 2, rounds=5, free_seqs=4).assigned == 5 * 2 * 4
