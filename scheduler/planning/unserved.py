"""Rule 10: what only workers could run that are all gone ends after a while, instead of waiting for its deadline.

    waits for                       its workers have left     all workers have left
    a fingerprint (has started)     ends after the wait       ends after the wait
    a model revision                ends after the wait       waits: whoever comes may serve it

The wait is for workers that are restarted. It counts from the moment at which requests wait and nobody serves them.
"""

from collections.abc import Iterator, Sequence

from scheduler.planning.lanes import Lane
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import LaneKey


class Unserved:
    """Since when nobody serves a lane."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Everything is served."""
        self._wait_s = settings.unserved_wait_s
        self._since_s: dict[LaneKey, float] = {}

    def look(
        self, lanes: Sequence[tuple[LaneKey, Lane]], now_s: float, *, has_workers: bool
    ) -> list[Lane]:
        """Nobody serves these ``lanes`` now; answers those for which that has lasted too long."""
        known = self._since_s
        self._since_s = {
            key: known.get(key, now_s)
            for key, _ in lanes
            if has_workers or key.fingerprint is not None
        }
        overdue = {key for key, at_s in self._ends_s() if at_s <= now_s}
        return [lane for key, lane in lanes if key in overdue]

    def next_s(self, now_s: float) -> float | None:
        """When the next wait is over."""
        return min((at_s for _, at_s in self._ends_s() if at_s > now_s), default=None)

    def _ends_s(self) -> Iterator[tuple[LaneKey, float]]:
        return ((key, since_s + self._wait_s) for key, since_s in self._since_s.items())
