"""Gauges of led partitions: sums over partitions, bounded labels, and nothing of what is not led for certain."""

from types import SimpleNamespace
from typing import Any

import pytest

from common.domain import OrderingHeader, Partition, Priority
from common.metrics import Metrics
from common.request_status import RequestStatus
from scheduler.gauges import Figures, PartitionGauges, count_requests
from tests.support.fake_clock import FakeClock


def request(tenant: str, status: RequestStatus, arrival_s: float) -> Any:
    """What counting looks at."""
    header = OrderingHeader(tenant, Priority.NORMAL, 1, 1)
    return SimpleNamespace(header=header, status=status, arrival_s=arrival_s)


def tenant_of(tenant: str) -> str:
    return tenant if tenant == "acme" else "other"


def figures(*requests: Any, now_s: float = 10.0) -> Figures:
    return count_requests(requests, now_s, tenant_of, num_workers=2, num_orphans=1)


@pytest.fixture
def metrics():
    metrics = Metrics()
    yield metrics
    metrics.shutdown(1)


def values(metrics: Metrics, name: str) -> dict[str, float]:
    lines = metrics.scrape()[0].decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(name + "{")]
    return {labels: float(value) for labels, value in pairs}


def test_requests_are_counted_by_class_tenant_and_age():
    """Waiting and running apart; the oldest is a waiting one; a tenant that nobody named is one of the others."""
    found = figures(
        request("acme", RequestStatus.QUEUED, 4.0),
        request("made-up-1", RequestStatus.QUEUED, 7.0),
        request("made-up-2", RequestStatus.RUNNING, 1.0),
        request("acme", RequestStatus.FINISHED, 0.0),
    )
    assert found.waiting[Priority.NORMAL] == 2
    assert found.running[Priority.NORMAL] == 1
    assert found.oldest_s[Priority.NORMAL] == 6.0
    assert found.tenants == {
        ("acme", "waiting"): 1,
        ("other", "waiting"): 1,
        ("other", "running"): 1,
    }


def test_what_is_not_led_for_certain_is_not_shown(metrics):
    """A lease that lapsed, and a partition that was given up, leave no series behind."""
    clock = FakeClock()
    gauges = PartitionGauges(metrics, clock)
    shown: list[Figures | None] = [figures(request("x", RequestStatus.QUEUED, 0.0))]
    gauges.add(Partition("m", 0), lambda: shown[0])
    gauges.add(Partition("m", 1), lambda: figures(request("x", RequestStatus.QUEUED, 3.0)))
    name = "headrace_num_requests_waiting"
    normal = f'{name}{{class="normal",model_name="m"}}'
    assert values(metrics, name)[normal] == 2
    shown[0] = None
    clock.advance(1)
    assert values(metrics, name)[normal] == 1
    (oldest,) = {v for k, v in values(metrics, "headrace_queue_oldest_seconds").items() if v}
    assert oldest == 7.0
    gauges.remove(Partition("m", 1))
    clock.advance(1)
    for gone in (name, "headrace_num_workers", "headrace_orphaned_requests"):
        assert values(metrics, gone) == {}
