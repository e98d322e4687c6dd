"""Which revision new requests get, from what the partitions' leaders see."""

from collections.abc import Mapping

from common.domain import Partition
from common.wire.snapshot import PartitionStatus, WorkerStatus
from gateway.revision import Served, served_revision


def seen(workers: Mapping[str, str], draining: str = "") -> PartitionStatus:
    """A partition with workers of these revisions, in the order in which they came."""
    statuses = [
        WorkerStatus(name, "i", revision, 0, 8, 0, 100, 16, name == draining, 5)
        for name, revision in workers.items()
    ]
    return PartitionStatus(Partition("m", 0), "leader:1", [], [], statuses, 0, 0.0, 1, [])


def test_the_newest_revision_is_preferred_where_it_is_served():
    """Only in its partitions does a request of it find a worker."""
    views = {0: seen({"w1": "old"}), 1: seen({"w2": "new", "w3": "old"})}
    assert served_revision("new", views) == Served("new", (1,))


def test_a_revision_without_workers_gives_way_to_one_that_has_some():
    """Workers of the former revision stand idle: requests go to them, to those that came last first."""
    assert served_revision("new", {0: seen({"w1": "old"})}) == Served("old", (0,))
    views = {0: seen({"w1": "older", "w2": "old"})}
    assert served_revision("new", views) == Served("old", (0,))


def test_a_worker_that_drains_serves_nothing_new():
    """Its revision is left with it."""
    views = {0: seen({"w1": "old", "w2": "new"}, draining="w2")}
    assert served_revision("new", views) == Served("old", (0,))


def test_a_model_without_workers_keeps_its_newest_revision():
    """Requests are held for it: somebody will come."""
    assert served_revision("new", {}) == Served("new")
    assert served_revision("new", {0: seen({})}) == Served("new")
    assert served_revision("new", {0: seen({"w1": "old"}, draining="w1")}) == Served("new")
