"""The simulator's own books; what it says of the rules is for people to judge."""

import random

import pytest

from common.domain import Priority
from tests.bench.simulate.__main__ import main, rate_of, run_policy
from tests.bench.simulate.measured import DEFAULT
from tests.bench.simulate.policies import POLICIES
from tests.bench.simulate.report import jain, length_table, percentile, table, tenant_table
from tests.bench.simulate.service import MeasuredStep, ServiceTimes, fit
from tests.bench.simulate.shapes import SHAPES, make_trace
from tests.bench.simulate.trace import Arrival, read_trace, write_trace


def trace(shape: str, count: int, load: float = 1.2, workers: int = 2) -> list[Arrival]:
    """A short trace."""
    return make_trace(shape, count, lambda sample: rate_of(sample, DEFAULT, workers, load), seed=3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_request_comes_to_one_end(shape, policy):
    """Whatever the policy, all are finished, refused, expired or late; what finished has all of its tokens."""
    arrivals = trace(shape, 120)
    run = run_policy(policy, arrivals, DEFAULT, 2, 1000)
    assert [one.arrival for one in run.outcomes] == arrivals
    for one in run.outcomes:
        assert one.end in {"finished", "refused", "expired", "late"}
        assert one.ended_s is not None
        if one.end == "finished":
            assert one.tokens == one.arrival.output_tokens
            assert 0 <= one.started_s <= one.first_token_s <= one.ended_s
    tokens = sum(tokens for share in run.served.values() for _, tokens in share)
    started = [one for one in run.outcomes if one.started_s is not None]
    assert tokens == sum(one.arrival.prompt_tokens + 2 * one.tokens for one in started)


def test_an_idle_worker_takes_what_the_service_times_say():
    """One request alone: its prompt, then a step for each token."""
    service = ServiceTimes(base_s=0.01, row_s=0.002, token_s=0.001)
    run = run_policy("fcfs", [Arrival(5.0, 100, 20, 64, Priority.NORMAL, "t")], service, 1, 10)
    (one,) = run.outcomes
    assert one.started_s == pytest.approx(0.0, abs=0.021)
    assert one.first_token_s - one.started_s == pytest.approx(0.1 + 0.012)
    assert one.ended_s - one.started_s == pytest.approx(0.1 + 20 * 0.012)


def test_rows_of_a_batch_slow_each_other_down():
    """Two that run together take the step of two rows."""
    service = ServiceTimes(base_s=0.01, row_s=0.002, token_s=0.0001)
    both = [Arrival(0.0, 10, 50, 64, Priority.NORMAL, "t") for _ in range(2)]
    run = run_policy("fcfs", both, service, 1, 10)
    assert run.outcomes[1].ended_s == pytest.approx(2 * 0.001 + 50 * 0.014)


def test_a_full_queue_refuses():
    """The bound of a class is admission's."""
    arrivals = [Arrival(0.0, 10, 50, 64, Priority.NORMAL, "t") for _ in range(200)]
    run = run_policy("headrace", arrivals, DEFAULT, 1, 50)
    assert sum(one.end == "refused" for one in run.outcomes) == 150


def test_a_run_can_be_repeated():
    """The same trace gives the same outcomes: chance is in traces only."""
    arrivals = trace("mixed", 100)
    first, second = (run_policy("headrace", arrivals, DEFAULT, 2, 1000) for _ in range(2))
    assert first.outcomes == second.outcomes


def test_service_times_are_found_again():
    """A fit of steps that follow the formula gives its numbers, noise or not."""
    rng = random.Random(1)
    steps = [
        MeasuredStep(rows, tokens, (0.004 + 0.001 * rows + 0.0005 * tokens) * rng.gauss(1, 0.01))
        for rows, tokens in [(1, 0), (8, 0), (32, 0), (64, 0), (0, 256), (0, 512), (8, 256)]
    ]
    found = fit(steps)
    assert found.base_s == pytest.approx(0.004, rel=0.1)
    assert found.row_s == pytest.approx(0.001, rel=0.1)
    assert found.token_s == pytest.approx(0.0005, rel=0.1)


def test_traces_and_times_are_files(tmp_path):
    """What is written is read again as it was."""
    arrivals = trace("burst", 20)
    write_trace(tmp_path / "trace.csv", arrivals)
    assert read_trace(tmp_path / "trace.csv") == arrivals
    DEFAULT.write(tmp_path / "service.json")
    assert ServiceTimes.read(tmp_path / "service.json") == DEFAULT


def test_the_command_prints_a_row_for_each_policy_and_class(tmp_path, capsys):
    """Tables by class and tenant, and a plot."""
    policy = ["--workers", "1", "--policies", "fcfs"]
    made = ["--shape", "mixed", "--requests", "60"]
    kept = ["--plot", str(tmp_path / "plot.png"), "--write-trace", str(tmp_path / "trace.csv")]
    main([*policy, *made, *kept])
    printed = capsys.readouterr().out
    assert "| fcfs | HIGH |" in printed
    assert "| fcfs | chat |" in printed
    assert "TTFT p50, p99: <=256" in printed
    assert (tmp_path / "plot.png").stat().st_size > 1000
    main([*policy, "--trace", str(tmp_path / "trace.csv")])
    assert capsys.readouterr().out.split("simulated")[0] == printed.split("simulated")[0]


def test_arithmetic_of_the_report():
    """Percentiles, Jain's index, and tables without rows."""
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.5) == 0.0
    assert jain([1, 1, 1]) == 1.0
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([0.0]) == 1.0
    assert table([]).count("\n") == tenant_table([]).count("\n") == 1
    assert length_table([]).count("\n") == 1
