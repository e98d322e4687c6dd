"""From the scheduler's settings to what the planner goes by."""

from collections.abc import Mapping
from dataclasses import replace

from scheduler.planning.settings import PlanningSettings
from scheduler.settings import SchedulerSettings


def planning_settings(
    settings: SchedulerSettings, tenant_weights: Mapping[str, float]
) -> PlanningSettings:
    """The rules that are on, with the weights as they are now."""
    planning = PlanningSettings(
        batch_window_ms=settings.batch_window_ms,
        tenant_weights=tenant_weights,
        unserved_wait_s=settings.resume_wait_s,
    )
    if not settings.length_buckets:
        planning = replace(planning, bucket_bounds=())
    return planning if settings.preemption else replace(planning, max_preempting=0)
