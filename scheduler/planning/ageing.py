"""Rule 2: a request whose class's patience has run out is overdue, and every k-th pick is for what is overdue longest.

    arrival ── 60 s ──▶ overdue          (BATCH; 30 s NORMAL, 15 s HIGH, 10 s CRITICAL, default settings)

So nothing starves, whatever classes, tenants and lengths keep arriving: with n requests overdue before it, a request
starts within k * (n + 1) picks. What waits long does not rise into higher classes instead: at a lasting overload
everything would, and HIGH requests would queue behind all of BATCH.
"""

from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest


def overdue_s(request: WaitingRequest, settings: PlanningSettings) -> float:
    """When the request becomes overdue."""
    return request.arrival_s + settings.patience_s[request.priority]


def is_turn_of_overdue(num_picked: int, settings: PlanningSettings) -> bool:
    """Whether the pick behind so many is for what is overdue longest."""
    return (num_picked + 1) % settings.overdue_every == 0
