"""Every metric of Headrace: one set of OpenTelemetry instruments, scraped at ``/metrics`` and sent by OTLP.

A service builds one ``Metrics`` in ``__main__`` and passes it down. An instrument that a service never
touches does not appear. Names here lack the suffix that the Prometheus exporter adds: ``_total`` for
counters, ``_seconds`` for the unit ``s``; a test holds the scraped names.

Labels are bounded sets only: models that are known, priority classes, reasons from our own enums. Never
request, tenant or worker ids.
"""

import threading
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from common.domain import Priority
from common.metric_readers import PushReader, ScrapeReader
from common.telemetry_names import SERVICE_VERSION
from common.token_gaps import Labels, TokenGaps

Read = Callable[[], Iterable[tuple[float, Labels]]]
"""Values of a gauge now. Called from the scraping thread: it must not block, nor iterate over a
collection that the event loop changes."""

# Steps of the engine and of Redis: a fraction of a millisecond to a stall.
STEP_BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1),
    *(0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0),
)
# Waiting: the tail is as long as an overloaded queue, not as long as one would like.
WAIT_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKEN_BOUNDS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)


def model_labels(model: str) -> Labels:
    """Labels of what concerns a model."""
    return {"model_name": model}


def class_labels(model: str, priority: Priority) -> Labels:
    """Labels of what concerns one class of a model's queue."""
    return {"model_name": model, "class": priority.name.lower()}


class Gauge:
    """A value that is asked for when somebody looks, so that it is never stale."""

    def __init__(self, meter: Meter, name: str, description: str, unit: str = "") -> None:
        """Silent until ``watch`` is called."""
        self._reads: list[Read] = []
        meter.create_observable_gauge(name, [self._observe], unit, description)

    def watch(self, read: Read) -> None:
        """Report what ``read`` returns, at each look."""
        self._reads.append(read)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        for read in self._reads:
            for value, labels in read():
                yield Observation(value, dict(labels))


class Metrics:
    """The instruments of one process. Counters and histograms cost about 5 µs a call; gauges nothing."""

    def __init__(
        self,
        resource: Resource | None = None,
        exporter: MetricExporter | None = None,
        *,
        export_interval_s: float = 10.0,
    ) -> None:
        """``exporter`` is fed besides ``/metrics``."""
        resource = resource or Resource({})
        self.token_gaps = TokenGaps(
            "headrace_inter_token_latency", "time between tokens of a request", STEP_BOUNDS_S
        )
        self._registry = CollectorRegistry()
        readers: list[ScrapeReader | PushReader] = [ScrapeReader(self._registry, self.token_gaps)]
        if exporter is not None:
            readers.append(PushReader(exporter, self.token_gaps, interval_s=export_interval_s))
        self._provider = MeterProvider(
            readers,
            resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        # The exporter hands its data over through a queue that two scrapes at once would mix up.
        self._scraping = threading.Lock()
        meter = self._provider.get_meter("headrace")
        # Always there, so that a scrape of an idle process shows that it is the process one meant.
        Gauge(meter, "headrace_build_info", "1, labelled with the version").watch(
            lambda: [(1, {"version": str(resource.attributes.get(SERVICE_VERSION, "unknown"))})]
        )
        self._add_queue(meter)
        self._add_requests(meter)
        self._add_engine(meter)
        self._add_links(meter)

    def _add_queue(self, meter: Meter) -> None:
        self.num_requests_waiting = Gauge(
            meter, "headrace_num_requests_waiting", "requests in the queue"
        )
        self.num_requests_running = Gauge(
            meter, "headrace_num_requests_running", "requests dispatched to a worker"
        )
        self.num_workers = Gauge(meter, "headrace_num_workers", "workers connected")
        self.dispatched = _counter(meter, "dispatched", "requests sent to a worker")
        self.queue_time = _seconds(
            meter, "queue_time", "time from admission to dispatch", WAIT_BOUNDS_S
        )
        self.admission_refusals = _counter(
            meter, "admission_refusals", "requests refused at admission, by reason"
        )
        self.takeovers = _counter(meter, "takeovers", "requests taken over from another scheduler")
        self.worker_losses = _counter(
            meter, "worker_losses", "workers lost while they ran requests"
        )
        self.preemptions_asked = _counter(
            meter, "preemptions_asked", "requests asked to make room for a more important one"
        )
        self.dispatch_batch_size = _sizes(
            meter, "dispatch_batch_size", "requests of one Assign", BATCH_BOUNDS
        )

    def _add_requests(self, meter: Meter) -> None:
        self.num_streams = Gauge(meter, "headrace_num_streams", "client streams open")
        self.request_success = _counter(
            meter, "request_success", "requests finished, by finish reason"
        )
        self.requests_ended = _counter(meter, "requests_ended", "requests ended, by final status")
        self.dead_letters = _counter(meter, "dead_letters", "requests set aside as poison")
        self.prompt_tokens = _counter(meter, "prompt_tokens", "prompt tokens taken up")
        self.generation_tokens = _counter(meter, "generation_tokens", "tokens generated")
        self.time_to_first_token = _seconds(
            meter, "time_to_first_token", "time from arrival to the first token", WAIT_BOUNDS_S
        )
        self.e2e_request_latency = _seconds(
            meter, "e2e_request_latency", "time from arrival to the end", WAIT_BOUNDS_S
        )
        self.rpc_time = _seconds(meter, "rpc_time", "time of an RPC", WAIT_BOUNDS_S)

    def _add_engine(self, meter: Meter) -> None:
        self.kv_cache_usage = Gauge(
            meter, "headrace_kv_cache_usage_ratio", "share of KV blocks in use"
        )
        self.kv_blocks_used = Gauge(meter, "headrace_kv_blocks_used", "KV blocks in use")
        self.kv_blocks_total = Gauge(meter, "headrace_kv_blocks", "KV blocks in the pool")
        self.step_time = _seconds(meter, "step_time", "time of an engine step", STEP_BOUNDS_S)
        self.batch_size = _sizes(meter, "batch_size", "sequences of a step", BATCH_BOUNDS)
        self.step_tokens = _sizes(meter, "step_tokens", "tokens computed by a step", TOKEN_BOUNDS)
        self.preemptions = _counter(meter, "preemptions", "sequences put back into the queue")
        self.row_failures = _counter(
            meter, "row_failures", "sequences that failed alone, by reason"
        )

    def _add_links(self, meter: Meter) -> None:
        self.log_append_time = _seconds(
            meter, "log_append", "time of an append to a reply log", STEP_BOUNDS_S
        )
        self.redis_errors = _counter(
            meter, "redis_errors", "errors of Redis commands, by operation"
        )
        self.session_reconnects = _counter(
            meter, "session_reconnects", "sessions between worker and scheduler begun again"
        )

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """The text for Prometheus and its content type. Any thread may ask."""
        encode, content_type = choose_encoder(accept)
        with self._scraping:
            return encode(self._registry), content_type

    def shutdown(self, timeout_s: float) -> None:
        """Send what is left, within ``timeout_s``. Blocks."""
        self._provider.shutdown(timeout_millis=timeout_s * 1000)


def _counter(meter: Meter, name: str, description: str) -> Counter:
    return meter.create_counter(f"headrace_{name}", description=description)


def _seconds(meter: Meter, name: str, description: str, bounds: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        f"headrace_{name}",
        unit="s",
        description=description,
        explicit_bucket_boundaries_advisory=bounds,
    )


def _sizes(meter: Meter, name: str, description: str, bounds: tuple[int, ...]) -> Histogram:
    return meter.create_histogram(
        f"headrace_{name}", description=description, explicit_bucket_boundaries_advisory=bounds
    )
