"""Builds tracing and metrics of a process from its settings: the one place that knows the exporters."""

import os
import platform
from importlib import metadata

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from common.metrics import Metrics
from common.redaction import RedactingExporter, Redactor
from common.service_settings import TelemetrySettings
from common.span_encoding import QuickSpanExporter
from common.telemetry_names import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from common.tracing import Tracing

EXPORT_TIMEOUT_S = 3.0
# A stop waits this long for traces and again for metrics: one export, should the receiver be gone.
FLUSH_TIMEOUT_S = EXPORT_TIMEOUT_S
SPAN_EXPORT_INTERVAL_S = 1.0
METRIC_EXPORT_INTERVAL_S = 10.0
# Spans of a burst wait here for the next export; beyond it they are dropped rather than slow anyone down.
MAX_QUEUED_SPANS = 8192


def instance_name(settings: TelemetrySettings) -> str:
    """The configured name of this process, or one that tells processes of one machine apart."""
    return settings.service_instance or f"{platform.node()}-{os.getpid()}"


def build_tracing(service: str, settings: TelemetrySettings) -> Tracing:
    """Tracing that exports by OTLP if a receiver is configured."""
    resource = _resource(service, settings)
    if settings.otlp_endpoint is None:
        return Tracing(resource)
    exporter = QuickSpanExporter(
        endpoint=settings.otlp_endpoint,
        insecure=settings.otlp_insecure,
        timeout=EXPORT_TIMEOUT_S,
    )
    redactor = Redactor.of(settings.redact)
    processor = BatchSpanProcessor(
        RedactingExporter(exporter, redactor) if redactor else exporter,
        max_queue_size=MAX_QUEUED_SPANS,
        schedule_delay_millis=SPAN_EXPORT_INTERVAL_S * 1000,
    )
    return Tracing(resource, processor, sample_ratio=settings.trace_sample_ratio)


def build_metrics(service: str, settings: TelemetrySettings) -> Metrics:
    """Metrics for ``/metrics``, exported by OTLP too if a receiver is configured."""
    exporter = None
    if settings.otlp_endpoint is not None:
        exporter = OTLPMetricExporter(
            endpoint=settings.otlp_endpoint,
            insecure=settings.otlp_insecure,
            timeout=EXPORT_TIMEOUT_S,
        )
    return Metrics(
        _resource(service, settings), exporter, export_interval_s=METRIC_EXPORT_INTERVAL_S
    )


def _resource(service: str, settings: TelemetrySettings) -> Resource:
    # Not Resource.create: it would read OTEL_ variables, and only __main__ reads the environment.
    return Resource(
        {
            SERVICE_NAME: f"headrace-{service}",
            SERVICE_INSTANCE_ID: instance_name(settings),
            SERVICE_VERSION: _version(),
        }
    )


def _version() -> str:
    try:
        return metadata.version("headrace-server")
    except metadata.PackageNotFoundError:
        return "unknown"
