"""When a step counts as hung."""

from common.domain import Clock
from tests.support.fake_clock import FakeClock
from worker.engine.report import Credit
from worker.session.engine_thread import EngineStatus
from worker.session.watchdog import EXIT_STEP_HUNG, StepWatchdog


def watch(clock: Clock, progress_s: float | None) -> list[int]:
    """Exit codes that one look brings."""
    codes: list[int] = []
    status = EngineStatus(Credit(1, 1, 0), 1, 0, 0, progress_s)
    StepWatchdog(lambda: status, 60, clock, codes.append).look()
    return codes


def test_only_work_without_progress_is_a_hang() -> None:
    """An idle engine may be silent for ever; a busy one for as long as the bound."""
    clock = FakeClock()
    began_s = clock()
    clock.advance(60)
    assert watch(clock, began_s) == []
    clock.advance(0.1)
    assert watch(clock, None) == []
    assert watch(clock, began_s) == [EXIT_STEP_HUNG]
