"""A partition more where a leader lacks CPU time for long, another scheduler leads nothing, and workers can be spared."""

from dataclasses import replace

import pytest

from common.domain import Partition
from scheduler.growth import Growth, GrowthRule, Lead

RULE = GrowthRule(most=3, cpu_share=0.8, lasting_s=10.0)
LEAD = Lead(Partition("m", 0), num_partitions=1, num_workers=4)


def grown(
    growth: Growth,
    share: float,
    *,
    from_s: float = 0.0,
    until_s: float = 60.0,
    lead: Lead | None = LEAD,
    has_idle_scheduler: bool = True,
) -> list[float]:
    """When it wants a partition more, looking each second while it uses ``share`` of a core."""
    times = [from_s + second for second in range(int(until_s - from_s) + 1)]
    return [
        now_s
        for now_s in times
        if growth.look(
            lead, has_idle_scheduler=has_idle_scheduler, cpu_s=share * now_s, now_s=now_s
        )
    ]


def test_a_load_that_lasts_adds_one_and_the_next_only_when_it_lasts_again():
    """The first is there within seconds, and takes half of the requests: time has to show whether that is enough."""
    assert grown(Growth(RULE), 0.9, until_s=25.0) == [10.0, 20.0]


def test_a_leader_that_has_time_left_adds_none():
    """However long it serves."""
    assert grown(Growth(RULE), 0.79) == []


def test_a_burst_adds_none():
    """The count of seconds begins anew behind each pause."""
    growth = Growth(RULE)
    assert grown(growth, 0.9, until_s=9.0) == []
    assert not growth.look(LEAD, has_idle_scheduler=True, cpu_s=0.9 * 9.0, now_s=10.0)
    assert not growth.look(LEAD, has_idle_scheduler=True, cpu_s=0.9 * 9.0 + 1.0, now_s=11.0)


@pytest.mark.parametrize(
    "lead",
    [
        None,
        replace(LEAD, num_partitions=3),
        replace(LEAD, num_workers=1),
    ],
    ids=["leads none or several", "as many as are allowed", "no worker to spare"],
)
def test_where_it_would_not_help_or_is_not_allowed_none_is_added(lead):
    """A busy process alone is no reason."""
    assert grown(Growth(RULE), 1.0, lead=lead) == []


def test_where_everybody_leads_already_none_is_added():
    """Two partitions of one process share its core."""
    assert grown(Growth(RULE), 1.0, has_idle_scheduler=False) == []


def test_looks_that_follow_one_another_closely_count_as_one():
    """News of a model makes more of them; a share of milliseconds says nothing."""
    growth = Growth(RULE)
    assert not growth.look(LEAD, has_idle_scheduler=True, cpu_s=0.0, now_s=0.0)
    for look in range(1, 40):
        # 0.9 of each half second are used in its first quarter of a second.
        cpu_s = 0.45 * ((look + 1) // 2)
        assert not growth.look(LEAD, has_idle_scheduler=True, cpu_s=cpu_s, now_s=look * 0.25)
    assert growth.look(LEAD, has_idle_scheduler=True, cpu_s=9.0, now_s=10.0)
