"""Moments at which the loop has to look at something again."""

import heapq
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class DeadlineDue:
    """The request's deadline has passed."""

    request_id: str


@dataclass(frozen=True, slots=True)
class CancelOverdue:
    """The worker was told to stop an attempt and has not answered."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class LossDecided:
    """A worker had its time to come back."""

    worker_id: str
    incarnation: str


Alarm = DeadlineDue | CancelOverdue | LossDecided


class Alarms:
    """Alarms by time. Nothing is removed early: whoever hears an alarm checks whether it still matters."""

    def __init__(self) -> None:
        """None set."""
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = count()

    def set(self, at_s: float, alarm: Alarm) -> None:
        """Ring at ``at_s``."""
        heapq.heappush(self._heap, (at_s, next(self._numbers), alarm))

    @property
    def next_s(self) -> float | None:
        """When the next one rings."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> list[Alarm]:
        """What rings now, in order."""
        found: list[Alarm] = []
        while self._heap and self._heap[0][0] <= now_s:
            found.append(heapq.heappop(self._heap)[2])
        return found
