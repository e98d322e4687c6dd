"""Which revision of a model new requests get: one that a worker serves, where there is one.

The store names the revision whose card came last. When its workers have left and those of another are still here, new
requests would wait for nobody. A snapshot may be a second old: what it leads to is a preference, never a lost request.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from common.wire.snapshot import PartitionStatus


@dataclass(frozen=True, slots=True)
class Served:
    """A revision, and the partitions in which a worker serves it; none where nobody serves the model at all."""

    revision: str
    partitions: tuple[int, ...] = ()


def partitions_serving(revision: str, views: Mapping[int, PartitionStatus]) -> tuple[int, ...]:
    """The partitions in which a worker serves a revision."""
    return tuple(
        index
        for index, view in sorted(views.items())
        if any(w.model_revision == revision and not w.draining for w in view.workers)
    )


def served_revision(newest: str, views: Mapping[int, PartitionStatus]) -> Served:
    """The newest revision if a worker serves it or none serves any, else that of the worker that came last."""
    live = [
        worker.model_revision
        for view in views.values()
        for worker in view.workers
        if not worker.draining
    ]
    revision = newest if newest in live or not live else live[-1]
    return Served(revision, partitions_serving(revision, views))
