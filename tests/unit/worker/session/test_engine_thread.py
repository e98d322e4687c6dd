"""The engine's thread, run by the test itself."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from tests.support.engines import make_engine, make_job
from tests.support.fake_clock import FakeClock
from worker.engine.runner import Row, RowResult
from worker.session.engine_thread import EngineThread
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings


class Forgetful(SimulatedRunner):
    """Breaks the runner's contract: fewer results than rows."""

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        return []


def test_a_broken_engine_is_told_and_ends_the_thread() -> None:
    """A bug of ours is not survived: the process is to be replaced."""
    crashes: list[str] = []
    thread = EngineThread(
        make_engine(runner=Forgetful(SimulatedSettings(kv_blocks=8))),
        FakeClock(),
        lambda: crashes.append("crashed"),
    )
    thread.submit(make_job())
    with capture_logs() as lines, pytest.raises(AssertionError):
        thread.run()
    assert lines[-1]["event"] == "engine_crashed"
    assert crashes == ["crashed"]
