"""Runs a service: signals, telemetry, status endpoint, ready file, exit code.

    def main() -> None:
        settings = settings_or_exit(
            GatewaySettings, sys.argv[1:], os.environ, prog="headrace-gateway"
        )
        sys.exit(run_service("gateway", settings, lambda runtime: serve(settings, runtime)))

``serve`` does its work until ``runtime.stopping`` is set (SIGTERM or SIGINT), then finishes what it has
and returns. A second signal, or the end of the grace, cancels it. A third kills the process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

import uvloop

from common.garbage import keep_what_exists
from common.logs import Log, configure_logs
from common.metrics import Metrics
from common.process_meters import watch_process
from common.readiness import Liveness, Readiness
from common.ready_file import ReadyFile
from common.redaction import Redactor
from common.service_settings import ServiceSettings
from common.settings import describe_settings
from common.status_endpoint import Pages, StatusEndpoint
from common.stop_signals import EXIT_FORCED, StopForced, StopSignals
from common.telemetry import FLUSH_TIMEOUT_S, build_metrics, build_tracing, instance_name
from common.tracing import Tracing

EXIT_OK = 0
EXIT_FAILED = 1

_BEAT_INTERVAL_S = 1.0


class CannotServe(Exception):
    """A service refuses to run, for a reason that its operator can mend; told without a traceback."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the runner gives a service."""

    name: str
    instance: str
    log: Log
    tracing: Tracing
    metrics: Metrics
    readiness: Readiness
    stopping: asyncio.Event
    """Set when the service should finish."""
    metrics_address: str
    ready_file: ReadyFile
    mount: Callable[[str, Pages], None]
    """Adds pages to the status endpoint."""
    on_serving: Callable[[], None] = lambda: None
    """Called when everything has been loaded."""

    def announce(self, endpoints: Mapping[str, str]) -> None:
        """Everything serves, at these addresses: log it and write the ready file."""
        self.on_serving()
        all_endpoints = {**endpoints, "metrics": self.metrics_address}
        self.ready_file.write(self.name, all_endpoints)
        self.log.info("serving", endpoints=all_endpoints)


Serve = Callable[[Runtime], Awaitable[None]]


def run_service(name: str, settings: ServiceSettings, serve: Serve) -> int:
    """Run ``serve`` to its end and return the exit code."""
    instance = instance_name(settings)
    log = configure_logs(
        name,
        instance=instance,
        level=settings.log_level,
        log_format=settings.log_format,
        redactor=Redactor.of(settings.redact),
    )
    started_s = time.monotonic()
    log.info("starting", settings=describe_settings(settings))
    metrics, tracing = build_metrics(name, settings), build_tracing(name, settings)
    watch_process(metrics)
    readiness, liveness = Readiness(), Liveness()
    stopping = asyncio.Event()
    signals = StopSignals(log, stopping, settings.stop_grace_s)
    code = EXIT_FAILED
    try:
        with (
            _status_endpoint(settings, metrics, readiness, liveness) as endpoint,
            ReadyFile(settings.ready_file) as ready_file,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runtime = Runtime(
                name, instance, log, tracing, metrics, readiness, stopping,
                endpoint.address, ready_file, endpoint.mount, keep_what_exists,
            )  # fmt: skip
            code = runner.run(_supervise(runtime, liveness, signals, serve))
    except (CannotServe, OSError) as error:
        log.error("cannot start", error=str(error))
    finally:
        tracing.shutdown(FLUSH_TIMEOUT_S)
        metrics.shutdown(FLUSH_TIMEOUT_S)
        signals.done()
        log.info("stopped", code=code, uptime_s=round(time.monotonic() - started_s, 3))
    return code


def _status_endpoint(
    settings: ServiceSettings, metrics: Metrics, readiness: Readiness, liveness: Liveness
) -> StatusEndpoint:
    host, port = settings.metrics_host, settings.metrics_port
    try:
        return StatusEndpoint(host, port, metrics, readiness, liveness)
    except OSError as error:
        raise CannotServe(
            f"--metrics-port: cannot bind {host}:{port}: {error.strerror}"
        ) from error


async def _supervise(
    runtime: Runtime, liveness: Liveness, signals: StopSignals, serve: Serve
) -> int:
    """Serve until the end, a crash, or a forced stop."""
    code = EXIT_OK
    signals.install()
    try:
        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(_beat(liveness), name="heartbeat"),
                tasks.create_task(signals.force(), name="forced stop"),
            ]
            await serve(runtime)
            for watch in watches:
                watch.cancel()
    except* StopForced as group:
        runtime.log.warning("stop forced", reason=str(next(_leaves(group))))
        code = EXIT_FORCED
    except* CannotServe as group:
        for refusal in _leaves(group):
            runtime.log.error("cannot serve", error=str(refusal))
        code = EXIT_FAILED
    except* Exception as group:
        for failure in _leaves(group):
            runtime.log.error("service failed", exc_info=failure)
        code = EXIT_FAILED
    finally:
        signals.release()
    return code


async def _beat(liveness: Liveness) -> None:
    while True:
        liveness.beat()
        await asyncio.sleep(_BEAT_INTERVAL_S)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
