"""Time: the monotonic clock for every interval, and deadlines made from it.

Wall-clock time serves only to show people when something happened.
"""

import time
from dataclasses import dataclass
from typing import Self

from common.domain import Clock

monotonic_s: Clock = time.monotonic
"""Seconds of this process's monotonic clock, the default where a ``Clock`` is asked for."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of one clock."""

    at_s: float
    clock: Clock = monotonic_s

    @classmethod
    def after(cls, seconds: float, clock: Clock = monotonic_s) -> Self:
        """``seconds`` from now."""
        return cls(clock() + seconds, clock)

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.clock())

    @property
    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.clock() >= self.at_s
