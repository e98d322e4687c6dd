"""The engine's thread, run by the test itself."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.engines import make_engine, make_job
from tests.support.fake_clock import FakeClock
from worker.engine.report import Credit
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


FULL, USED = Credit(8, 100, 0), Credit(7, 90, 0)


class FakeEngine:
    """Holds a sequence until it is reset; behind that the thread gets no further before it may."""

    def __init__(self) -> None:
        self.credit = USED
        self.num_running = self.num_waiting = 0
        self.pool = SimpleNamespace(num_used=0)
        self.speculation = SimpleNamespace(pool=None)
        self.may_go_on = threading.Event()

    @property
    def has_work(self) -> bool:
        if self.credit is FULL:
            assert self.may_go_on.wait(60)
        return False

    def reset(self) -> None:
        self.credit = FULL


async def test_a_session_begins_with_the_credit_of_an_empty_engine() -> None:
    """What the last session held is forgotten, and nobody is told of it any more."""
    fake: Any = FakeEngine()
    thread = EngineThread(fake, lambda: 0.0, lambda: None)
    thread.start()
    try:
        await thread.begin_session(lambda _: None)
        assert thread.status.credit is FULL
    finally:
        fake.may_go_on.set()
        thread.stop(60)
