"""Rule 3: earliest deadline first inside a class where deadlines exist, arrival order otherwise.

Both are one order: a request without a deadline of its own is due when its class's patience ends. So a near
deadline goes ahead of it, a far one does not, and no stream of deadlines can keep it waiting for ever: at some
point it is older than all of theirs.
"""

from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest


def due_s(request: WaitingRequest, settings: PlanningSettings) -> float:
    """When the request is due. A deadline only ever brings it forward."""
    patient_until_s = request.arrival_s + settings.patience_s[request.priority]
    if request.has_deadline:
        return min(request.deadline_s, patient_until_s)
    return patient_until_s
