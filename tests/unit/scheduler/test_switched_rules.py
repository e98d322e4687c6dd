"""From the scheduler's settings to what the planner goes by."""

from scheduler.planning.settings import PlanningSettings
from scheduler.rules import planning_settings
from scheduler.settings import SchedulerSettings


def test_rules_can_be_switched_off():
    """Without length buckets all prompts are alike; without pre-emption nobody is asked to make room."""
    settings = SchedulerSettings(length_buckets=False, preemption=False, batch_window_ms=3.0)
    planning = planning_settings(settings, {"a": 2.0})
    assert (planning.bucket_bounds, planning.max_preempting) == ((), 0)
    assert (planning.batch_window_ms, planning.tenant_weights) == (3.0, {"a": 2.0})
    assert planning_settings(SchedulerSettings(), {}) == PlanningSettings()
