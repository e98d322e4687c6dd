"""The two ways metrics leave a process, each with the weighted histogram of ``common.token_gaps`` added."""

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

from common.token_gaps import TokenGaps

# Series of one instrument: models x classes x reasons, with room. What exceeds it is counted together
# under otel_metric_overflow="true", so that a bug in a label can never exhaust memory.
MAX_SERIES = 1000


class ScrapeReader(PrometheusMetricReader):
    """Fills a Prometheus registry when it is scraped; no target or scope labels."""

    def __init__(self, registry: CollectorRegistry, token_gaps: TokenGaps) -> None:
        """``registry`` is this process's own, not the client library's global one."""
        self._token_gaps = token_gaps
        super().__init__(
            disable_target_info=True,
            scope_info_enabled=False,
            registry=registry,
            cardinality_limits=dict.fromkeys((Counter, Histogram, ObservableGauge), MAX_SERIES),
        )

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(_with(metrics_data, self._token_gaps), timeout_millis, **kwargs)


class PushReader(PeriodicExportingMetricReader):
    """Sends metrics to an exporter at intervals."""

    def __init__(
        self, exporter: MetricExporter, token_gaps: TokenGaps, *, interval_s: float
    ) -> None:
        """The first export comes one interval from now, the last at shutdown."""
        self._token_gaps = token_gaps
        super().__init__(exporter, export_interval_millis=interval_s * 1000)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(_with(metrics_data, self._token_gaps), timeout_millis, **kwargs)


def _with(data: MetricsData, token_gaps: TokenGaps) -> MetricsData:
    extra = token_gaps.collect()
    if extra is None or not data.resource_metrics:
        return data
    first, *others = data.resource_metrics
    scope, *scopes = first.scope_metrics
    scope = replace(scope, metrics=[*scope.metrics, extra])
    return replace(
        data, resource_metrics=[replace(first, scope_metrics=[scope, *scopes]), *others]
    )
