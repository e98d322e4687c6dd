"""The two ways metrics leave a process, each with the instruments of ``common.tallies`` added."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import Counter, Histogram, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
)
from prometheus_client import CollectorRegistry

from common.tallies import MAX_SERIES, Spread, Tally

Kept = Sequence[Tally | Spread]


class ScrapeReader(PrometheusMetricReader):
    """Fills a Prometheus registry when it is scraped; no target or scope labels."""

    def __init__(self, registry: CollectorRegistry, kept: Kept) -> None:
        """``registry`` is this process's own, not the client library's global one; ``kept`` may still grow."""
        self._kept = kept
        super().__init__(
            disable_target_info=True,
            scope_info_enabled=False,
            registry=registry,
            cardinality_limits=dict.fromkeys((Counter, Histogram, ObservableGauge), MAX_SERIES),
        )

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(_with(metrics_data, self._kept), timeout_millis, **kwargs)


class PushReader(PeriodicExportingMetricReader):
    """Sends metrics to an exporter at intervals."""

    def __init__(self, exporter: MetricExporter, kept: Kept, *, interval_s: float) -> None:
        """The first export comes one interval from now, the last at shutdown."""
        self._kept = kept
        super().__init__(exporter, export_interval_millis=interval_s * 1000)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(_with(metrics_data, self._kept), timeout_millis, **kwargs)


def _with(data: MetricsData, kept: Kept) -> MetricsData:
    found = [metric for one in kept if (metric := one.collect()) is not None]
    if not found or not data.resource_metrics:
        return data
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, *found])
    return replace(
        data, resource_metrics=[replace(first, scope_metrics=[scope, *scopes]), *others]
    )
