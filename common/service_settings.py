"""Settings that every service has; a service's own class inherits ``ServiceSettings``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from common.redaction import problem_with
from common.setting_fields import above, between, port, setting

GATEWAY_METRICS_PORT = 9464
SCHEDULER_METRICS_PORT = 9465
WORKER_METRICS_PORT = 9466


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important lines that are still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """Where traces, metrics and logs go."""

    otlp_endpoint: str | None = setting(
        None, help="host:port or URL of an OTLP gRPC receiver; without it nothing is exported"
    )
    otlp_insecure: bool = setting(True, help="speak to the OTLP receiver without TLS")
    trace_sample_ratio: float = setting(
        1.0, help="share of traces begun here that are recorded", check=between(0, 1)
    )
    log_level: LogLevel = setting(LogLevel.INFO, help="least important log lines to write")
    log_format: LogFormat = setting(LogFormat.JSON, help="how log lines look")
    redact: Path | None = setting(
        None,
        help="TOML file with patterns: what they match is redacted in logs and traces",
        check=problem_with,
    )
    service_instance: str = setting(
        "", help="name of this process in telemetry; default host name and process id"
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Where ``/metrics``, ``/livez`` and ``/readyz`` are served."""

    metrics_host: str = setting("127.0.0.1", help="address of /metrics, /livez and /readyz")
    metrics_port: int = setting(
        GATEWAY_METRICS_PORT, help="port of /metrics; 0 picks a free one", check=port
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(TelemetrySettings, MetricsSettings):
    """What the service runner needs to know."""

    ready_file: Path | None = setting(
        None, help="file that gets the endpoints as JSON once everything serves"
    )
    stop_grace_s: float = setting(
        30.0, help="seconds that a stop may take before it is forced", check=above(0)
    )


def metrics_port_setting(default: int) -> int:
    """The field ``metrics_port`` with a service's own default, so that all fit on one machine."""
    chosen: int = setting(default, help="port of /metrics; 0 picks a free one", check=port)
    return chosen
