"""Rule 2: a waiting request rises by a class whenever its patience in one has run out, so that nothing starves.

    arrival ── 60 s ──▶ NORMAL ── 30 s ──▶ HIGH ── 15 s ──▶ CRITICAL          (a BATCH request, default settings)

Its place inside the class it rises to goes by its own due time, which by then is earlier than those of the
requests that arrive there.
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
            below = [level for level in Priority if came_in <= level < Priority.CRITICAL]
            patience_s = accumulate(settings.patience_s[level] for level in below)
            self._after_s.update(
                ((came_in, level), s) for level, s in zip(below, patience_s, strict=True)
            )

    def rises_after_s(self, came_in: Priority, level: Priority) -> float | None:
        """How long after its arrival a request leaves ``level`` for the next class; None: there is none."""
        return self._after_s.get((came_in, level))
