"""One bad row does not take its batch mates along."""

from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from common.domain import FinishReason
from tests.support.engines import make_engine, make_job, run_all, run_alone
from worker.engine.containment import run_contained
from worker.engine.runner import Drawn, Row, RowFailed, RowResult
from worker.faults import Fault, FaultAction, FaultyRunner
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

POISON = ord("!")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rendering the errors on purpose would take most of the time."""
    with capture_logs():
        yield


class CountingRunner:
    """Draws each row's own token; raises while one of ``bad`` is among the rows."""

    num_blocks = block_size = 1

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.num_runs = 0

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        self.num_runs += 1
        if any(row.token_ids[0] in self.bad for row in rows):
            raise ValueError("bad")
        return [Drawn(row.token_ids[0]) for row in rows]


@pytest.mark.parametrize("bad", [set(), {0}, {5, 6}, {15}, set(range(16))])
def test_exactly_the_bad_rows_fail(bad: set[int]) -> None:
    """Results come in order; a single culprit costs a logarithmic number of repeated steps."""
    runner = CountingRunner(bad)
    results = run_contained(runner, [Row([i], 0, [0], None) for i in range(16)])
    for i, result in enumerate(results):
        if i in bad:
            assert isinstance(result, RowFailed)
            assert result.reason == "ENGINE_ERROR"
        else:
            assert result == Drawn(i)
    if len(bad) == 1:
        assert runner.num_runs == 1 + 2 * 4


@pytest.mark.parametrize(
    ("action", "reason"), [(FaultAction.RAISE, "ENGINE_ERROR"), (FaultAction.NAN, "NUMERIC")]
)
def test_poisoned_request_fails_alone(action: FaultAction, reason: str) -> None:
    """A step that raises and a row without numbers end one request; its mates get their undisturbed tokens."""
    healthy = [make_job(f"r{i}", "fine" * i, max_tokens=20) for i in range(1, 5)]
    faulty = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=64, block_size=4)), [Fault(POISON, action)]
    )
    jobs = [*healthy[:2], make_job("bad", "boom!"), *healthy[2:]]
    outcomes = run_all(make_engine(runner=faulty), jobs)
    failed = outcomes.of("bad").finish
    assert failed.reason is FinishReason.ERROR
    assert (failed.failure.code, failed.failure.reason) == ("INTERNAL", reason)
    for job in healthy:
        assert outcomes.of(job.ticket.request_id).token_ids == run_alone(job).token_ids
