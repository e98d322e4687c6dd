"""Rule 2: a waiting request rises by a class whenever its patience in one has run out, so that nothing starves.

    arrival ── 60 s ──▶ NORMAL ── 30 s ──▶ HIGH ── 15 s ──▶ CRITICAL ── 10 s ──▶ overdue   (a BATCH request)

Its place inside the class it rises to goes by its own due time, which by then is earlier than those of the
requests that arrive there. Behind the last class it is overdue: every k-th pick is for the oldest of these,
whatever classes, tenants and lengths say, so that no flood of others can keep it waiting for ever.
"""

from itertools import accumulate

from common.domain import Priority
from scheduler.planning.settings import PlanningSettings


class Ageing:
    """When requests rise, worked out once for every class that they may come in and be in."""

    def __init__(self, settings: PlanningSettings) -> None:
        """By the settings' patience."""
        self._after_s: dict[tuple[Priority, Priority], float] = {}
        for came_in in Priority:
            above = [level for level in Priority if level >= came_in]
            patience_s = accumulate(settings.patience_s[level] for level in above)
            self._after_s.update(
                ((came_in, level), s) for level, s in zip(above, patience_s, strict=True)
            )

    def rises_after_s(self, came_in: Priority, level: Priority) -> float:
        """How long after its arrival a request leaves ``level`` for the next class, or becomes overdue in the last."""
        return self._after_s[came_in, level]
