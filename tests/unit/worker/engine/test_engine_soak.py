"""Everything at once, at random: whatever happens to requests, each is accounted for exactly once."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from common.domain import FinishReason
from tests.support.engines import make_engine, make_job
from tests.support.fake_clock import FakeClock
from worker.engine.engine import Engine
from worker.engine.report import StepReport
from worker.faults import Fault, FaultAction, FaultyRunner
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings


class Accounts:
    """Ends of choices and returns of requests, each of which may happen once."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        self.reasons: Counter[str] = Counter()

    def submit(self, name: str, num_choices: int) -> None:
        self.open[name] = num_choices

    def observe(self, report: StepReport) -> None:
        for output in report.outputs:
            assert self.open[output.ticket.request_id] > 0, output
            if output.finish is not None:
                self.open[output.ticket.request_id] -= 1
                self.reasons[output.finish.reason] += 1
        for returned in report.returned:
            assert self.open[returned.ticket.request_id] > 0, returned
            self.open[returned.ticket.request_id] = 0
            self.reasons[returned.reason] += 1


def disturb(engine: Engine, name: str, randomness: random.Random) -> None:
    match randomness.randrange(4):
        case 0:
            engine.cancel(name, 1, FinishReason.CANCELLED)
        case 1:
            engine.cancel(name, 1, FinishReason.DEADLINE)
        case 2:
            engine.give_back(name, 1, "preempted")
        case 3:
            engine.cancel(name, 2, FinishReason.CANCELLED)  # of an attempt that never was


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rendering the injected errors would take most of the time."""
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", range(6))
def test_every_request_ends_once_and_every_block_is_free(seed: int) -> None:
    """Under cancels, deadlines, pre-emptions, faults and pressure, nothing is lost, told twice or leaked."""
    randomness, clock, accounts = random.Random(seed), FakeClock(), Accounts()
    runner = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=40, block_size=4, eos_every=30)),
        [Fault(ord("!"), FaultAction.RAISE), Fault(ord("?"), FaultAction.NAN)],
    )
    engine = make_engine(clock=clock, runner=runner)
    for number in range(300):
        if randomness.random() < 0.5:
            name = f"r{number}"
            job = make_job(
                name,
                "x" * randomness.randint(1, 60) + randomness.choice(["", "", "", "!", "?"]),
                max_tokens=randomness.randint(1, 60),
                n=randomness.choice([1, 1, 1, 3]),
                temperature=1.0,
                deadline_s=clock() + randomness.choice([3, 50, 1000]),
            )
            accounts.submit(name, len(job.choices))
            engine.submit(job)
        alive = [name for name, num_choices in accounts.open.items() if num_choices]
        if randomness.random() < 0.3 and alive:
            disturb(engine, randomness.choice(alive), randomness)
        accounts.observe(engine.step())
        engine.check_integrity()
        clock.advance(1)
    while engine.has_work:
        accounts.observe(engine.step())
        engine.check_integrity()
    assert set(accounts.open.values()) == {0}
    assert engine.pool.num_used == 0
    assert {"stop", "length", "error", "cancelled", "deadline", "preempted"} <= set(
        accounts.reasons
    )
