"""Rule 2: a waiting request rises by a class whenever its patience in one has run out, so that nothing starves.

    arrival ── 60 s ──▶ NORMAL ── 30 s ──▶ HIGH ── 15 s ──▶ CRITICAL          (a BATCH request, default settings)

Its place inside the class it rises to goes by its own due time, which by then is earlier than those of the
requests that arrive there.
"""

from common.domain import Priority
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest


def rises_at_s(
    request: WaitingRequest, level: Priority, settings: PlanningSettings
) -> float | None:
    """When the request leaves ``level`` for the next higher class; None: there is none."""
    if level is Priority.CRITICAL:
        return None
    passed = [p for p in Priority if request.priority <= p <= level]
    return request.arrival_s + sum(settings.patience_s[p] for p in passed)
