"""The queue's books: counts, positions, order."""

import pytest

from common.domain import Priority
from scheduler.planning.open_order import order_of_service
from tests.support.planning import make_queue, make_request


def test_counts_follow_what_is_added_and_removed():
    """Counts by class and tenant, and tokens, are those of what waits now."""
    queue = make_queue(
        make_request("a", tenant="x", arrival_s=1.0, tokens=10),
        make_request("b", tenant="y", arrival_s=2.0, tokens=20, priority=Priority.HIGH),
    )
    assert (len(queue), queue.waiting_tokens) == (2, 30)
    assert queue.by_class[Priority.HIGH] == 1
    removed = queue.remove("a")
    assert removed is not None
    assert removed.request_id == "a"
    assert queue.by_tenant == {"y": 1}
    assert queue.by_class == {p: int(p is Priority.HIGH) for p in Priority}
    assert (len(queue), queue.waiting_tokens) == (1, 20)
    assert "a" not in queue
    assert "b" in queue


def test_what_does_not_wait_is_not_found():
    """Removing or locating an unknown request is answered, not an error: it may just have been dispatched."""
    queue = make_queue()
    assert queue.remove("a") is None
    assert queue.start("a") is None


def test_a_request_is_queued_once():
    """Adding a queued request again is a bug of ours."""
    queue = make_queue(make_request("a"))
    with pytest.raises(AssertionError):
        queue.add(make_request("a"))


def test_the_order_of_service_goes_over_classes_buckets_and_lanes():
    """Highest class first, then by due time, whatever the length and whatever a worker must match."""
    queue = make_queue(
        make_request("low", priority=Priority.BATCH),
        make_request("late", arrival_s=5.0, tokens=3000),
        make_request("early", arrival_s=3.0),
        make_request("started", arrival_s=4.0, fingerprint="f"),
        make_request("top", priority=Priority.CRITICAL, arrival_s=9.0),
    )
    order = [request.request_id for request in order_of_service(queue, 10)]
    assert order == ["top", "early", "started", "late", "low"]
    assert [r.request_id for r in order_of_service(queue, 2)] == order[:2]


def test_a_tenant_keeps_its_count_while_it_has_other_requests():
    """Removing one of two requests of a tenant leaves one."""
    queue = make_queue(make_request("a"), make_request("b"))
    queue.remove("a")
    assert queue.by_tenant == {"t": 1}
