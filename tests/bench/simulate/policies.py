"""What is compared: the planner with all of its rules, and with most of them switched off.

Both of the others are the same planner over requests that were made alike, so that only the rules differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from common.domain import Priority
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest

_NEVER_S = 1e9
_PLAIN = PlanningSettings(
    bucket_bounds=(),
    max_preempting=0,
    patience_s=dict.fromkeys(Priority, _NEVER_S),
)


@dataclass(frozen=True)
class Policy:
    """Settings, and what of a request counts."""

    settings: PlanningSettings
    see: Callable[[WaitingRequest], WaitingRequest]


def _arrival_only(request: WaitingRequest) -> WaitingRequest:
    return replace(request, priority=Priority.NORMAL, tenant="", has_deadline=False)


def _class_only(request: WaitingRequest) -> WaitingRequest:
    return replace(request, tenant="", has_deadline=False)


POLICIES: Mapping[str, Policy] = {
    "fcfs": Policy(_PLAIN, _arrival_only),
    "priority": Policy(_PLAIN, _class_only),
    "headrace": Policy(PlanningSettings(), lambda request: request),
    "headrace without pre-emption": Policy(
        PlanningSettings(max_preempting=0), lambda request: request
    ),
    "without buckets": Policy(PlanningSettings(bucket_bounds=()), lambda request: request),
    "window": Policy(PlanningSettings(batch_window_ms=10), lambda request: request),
    "window without buckets": Policy(
        PlanningSettings(bucket_bounds=(), batch_window_ms=10), lambda request: request
    ),
}
