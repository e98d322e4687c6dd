"""One bad row does not take its batch mates along."""

from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from common.domain import FinishReason
from tests.support.engines import make_engine, make_job, run_all, run_alone
from worker.engine.containment import EngineFailed, run_contained
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


@pytest.mark.parametrize("bad", [set(), {1}, {5, 6}, {15}, set(range(1, 17))])
def test_exactly_the_bad_rows_fail(bad: set[int]) -> None:
    """Results come in order; a single culprit costs a logarithmic number of repeated steps."""
    runner = CountingRunner(bad)
    results = run_contained(runner, [Row([i], 0, [0], None) for i in range(1, 17)])
    for i, result in enumerate(results, 1):
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


class SmallMemory(SimulatedRunner):
    """Has memory for so many tokens a step, and none at all for rows that begin with some tokens."""

    def __init__(self, max_tokens: int, starving: str = "") -> None:
        super().__init__(SimulatedSettings(kv_blocks=128, block_size=4))
        self.max_tokens = max_tokens
        self.starving = set(starving.encode())

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        num_tokens = sum(len(row.token_ids) for row in rows)
        if num_tokens > self.max_tokens or any(self.starving & set(row.token_ids) for row in rows):
            raise MemoryError("no memory")
        return super().run(rows)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_a_step_without_memory_is_run_in_smaller_parts(max_tokens: int) -> None:
    """Down to a token at a time: slower, with the same tokens, and nobody fails."""
    jobs = [make_job(f"r{i}", "x" * (9 * i + 1), max_tokens=8) for i in range(4)]
    outcomes = run_all(make_engine(runner=SmallMemory(max_tokens)), jobs)
    for job in jobs:
        assert outcomes.of(job.ticket.request_id).token_ids == run_alone(job).token_ids


def test_the_largest_suspect_fails_and_the_others_go_on() -> None:
    """Of rows that have no memory even alone, one at a time fails; what it freed may be enough for the rest."""

    class Relieved(SmallMemory):
        """Has memory again once a row has failed."""

        def run(self, rows: Sequence[Row]) -> list[RowResult]:
            if engine.pool.num_used < used_before:
                self.starving = set()
            return super().run(rows)

    runner = Relieved(64, starving="!")
    engine = make_engine(runner=runner, max_batch_tokens=64, max_share_tokens=64)
    jobs = [
        make_job("small", "xx!"),
        make_job("large", "x" * 30 + "!"),
        make_job("fine", "healthy"),
    ]
    for job in jobs:
        engine.submit(job)
    used_before = 1 + 8 + 2
    outcomes = run_all(engine)
    failed = outcomes.of("large").finish
    assert (failed.failure.code, failed.failure.reason) == ("INTERNAL", "OUT_OF_MEMORY")
    for job in (jobs[0], jobs[2]):
        name = job.ticket.request_id
        assert outcomes.of(name).token_ids == run_alone(job).token_ids


@pytest.mark.parametrize("error", [RuntimeError("device lost"), MemoryError("none left")])
def test_a_broken_engine_blames_no_request(error: Exception) -> None:
    """When nothing can be run, a canary least of all, no request fails: the engine does."""

    class Broken(SimulatedRunner):
        def run(self, rows: Sequence[Row]) -> list[RowResult]:
            raise error

    engine = make_engine(runner=Broken(SimulatedSettings(kv_blocks=64, block_size=4)))
    for number in range(3):
        engine.submit(make_job(f"r{number}"))
    with pytest.raises(EngineFailed, match=str(error)):
        engine.step()


def test_all_rows_bad_and_a_sound_engine() -> None:
    """Two poisoned requests alone in a step: both fail, and the engine serves on."""
    runner = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=64, block_size=4)),
        [Fault(POISON, FaultAction.RAISE)],
    )
    engine = make_engine(runner=runner)
    outcomes = run_all(engine, [make_job("a", "!"), make_job("b", "no!")])
    assert {outcomes.of(name).finish.failure.reason for name in "ab"} == {"ENGINE_ERROR"}
    job = make_job("c", "fine")
    assert run_all(engine, [job]).of("c").token_ids == run_alone(job).token_ids
