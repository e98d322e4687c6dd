"""What a gateway shows of the models' pools, from the leaders' snapshots: signals for load balancers and scalers."""

from collections.abc import Callable

from common.metrics import Metrics, model_labels
from common.tallies import Labels
from common.wire.snapshot import PartitionStatus
from gateway.catalogue import Catalogue
from gateway.queue_views import QueueViews


class PoolMetrics:
    """Gauges over all partitions of each model; read from the scraping thread."""

    def __init__(self, catalogue: Catalogue, views: QueueViews) -> None:
        self._catalogue = catalogue
        self._views = views

    def show(self, metrics: Metrics) -> None:
        """Fill in the gauges whenever somebody scrapes."""
        metrics.pool_requests_queued.watch(
            lambda: self._sums(lambda view: sum(one.num_waiting for one in view.classes))
        )
        metrics.pool_requests_running.watch(lambda: self._sums(lambda view: view.num_running))
        metrics.pool_kv_cache_usage.watch(self._kv_usage)

    def _sums(self, value: Callable[[PartitionStatus], int]) -> list[tuple[float, Labels]]:
        return [
            (
                sum(value(view) for view in self._views.of_model(model)),
                model_labels(model.card.model),
            )
            for model in list(self._catalogue.models)
        ]

    def _kv_usage(self) -> list[tuple[float, Labels]]:
        found: list[tuple[float, Labels]] = []
        for model in list(self._catalogue.models):
            workers = [one for view in self._views.of_model(model) for one in view.workers]
            total = sum(one.kv_blocks for one in workers)
            if total:
                used = sum(one.kv_blocks_used for one in workers)
                found.append((used / total, model_labels(model.card.model)))
        return found
