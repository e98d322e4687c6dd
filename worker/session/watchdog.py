"""Ends the process when a step hangs, so that a supervisor replaces it and the scheduler runs its requests elsewhere.

It looks from a thread of its own: whatever hangs may hold the event loop or the engine's thread, and neither can be
unwound from outside. Requests lose nothing, because everything generated is in the reply log.
"""

import os
import threading
from collections.abc import Callable

from common.domain import Clock
from common.logs import get_log
from worker.session.engine_thread import EngineStatus

EXIT_STEP_HUNG = 75
EXIT_ENGINE_CRASHED = 76

_log = get_log(__name__)


class StepWatchdog:
    """Looks at the age of the last step, several times per bound."""

    def __init__(
        self,
        read_status: Callable[[], EngineStatus],
        timeout_s: float,
        clock: Clock,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        """``timeout_s`` is longer than any honest step takes."""
        self._read_status = read_status
        self._timeout_s = timeout_s
        self._clock = clock
        self._exit_process = exit_process
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="step-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    def look(self) -> None:
        """End the process if the last step is too long ago."""
        age_s = self._read_status().step_age_s(self._clock())
        if age_s > self._timeout_s:
            _log.critical("step_hung", age_s=round(age_s, 1), timeout_s=self._timeout_s)
            self._exit_process(EXIT_STEP_HUNG)

    def _watch(self) -> None:
        # A hang is noticed at most a tenth late.
        while not self._stopping.wait(self._timeout_s / 10):
            self.look()


def exit_crashed() -> None:
    """End the process behind a broken engine; everything it could say is in the log."""
    os._exit(EXIT_ENGINE_CRASHED)
