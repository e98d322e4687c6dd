"""Every metric of Headrace: one set of OpenTelemetry instruments, scraped at ``/metrics`` and sent by OTLP.

A service builds one ``Metrics`` in ``__main__`` and passes it down. An instrument that a service never
touches does not appear. Names here lack the suffix that the Prometheus exporter adds: ``_total`` for
counters, ``_seconds`` for the unit ``s``; a test holds the scraped names.

Labels are bounded sets only: models that are known, priority classes, reasons from our own enums, tenants that the
operator named. Never request or worker ids, and nothing that a client can make up.
"""

import threading
from collections.abc import Sequence

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from common.instruments import (
    BATCH_BOUNDS,
    GEN_AI_DURATION_BOUNDS_S,
    GEN_AI_FIRST_TOKEN_BOUNDS_S,
    GEN_AI_TOKEN_BOUNDS_S,
    PERPLEXITY_BOUNDS,
    SHARE_BOUNDS,
    STEP_BOUNDS_S,
    TOKEN_BOUNDS,
    WAIT_BOUNDS_S,
    Gauge,
    Total,
    class_labels,
    counter,
    model_labels,
    seconds,
    sizes,
)
from common.metric_readers import PushReader, ScrapeReader
from common.speculation_metrics import SpeculationMetrics
from common.tallies import Spread, Tally
from common.telemetry_names import SERVICE_VERSION

__all__ = ["Metrics", "class_labels", "model_labels"]


class Metrics:
    """The instruments of one process. The SDK's counters and histograms cost about 10 µs a call, so what every request
    does is counted by those of ``common.tallies``; gauges cost nothing.
    """

    def __init__(
        self,
        resource: Resource | None = None,
        exporter: MetricExporter | None = None,
        *,
        export_interval_s: float = 10.0,
    ) -> None:
        """``exporter`` is fed besides ``/metrics``."""
        resource = resource or Resource({})
        self._kept: list[Tally | Spread] = []
        self.token_gaps = self._spread(
            "headrace_inter_token_latency", "time between tokens of a request", STEP_BOUNDS_S
        )
        self._registry = CollectorRegistry()
        readers: list[ScrapeReader | PushReader] = [ScrapeReader(self._registry, self._kept)]
        if exporter is not None:
            readers.append(PushReader(exporter, self._kept, interval_s=export_interval_s))
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
        self._add_preemption(meter)
        self.speculation = SpeculationMetrics(meter)
        self._add_prefix_cache(meter)
        self._add_answers(meter)
        self._add_links(meter)
        self._add_machine(meter)

    def _add_queue(self, meter: Meter) -> None:
        self.num_requests_waiting = Gauge(
            meter, "headrace_num_requests_waiting", "requests in the queue"
        )
        self.num_requests_running = Gauge(
            meter, "headrace_num_requests_running", "requests dispatched to a worker"
        )
        self.num_workers = Gauge(meter, "headrace_num_workers", "workers connected")
        self.queue_oldest = Gauge(
            meter, "headrace_queue_oldest", "age of the oldest waiting request", "s"
        )
        self.orphaned_requests = Gauge(
            meter, "headrace_orphaned_requests", "open requests all of whose gateways are gone"
        )
        self.tenant_requests = Gauge(
            meter, "headrace_tenant_requests", "open requests of a named tenant, by state"
        )
        self.tenant_tokens = self._tally(
            "tenant_tokens", "tokens logged for a named tenant, by kind"
        )
        self.dispatched = self._tally("dispatched", "requests sent to a worker")
        self.queue_time = self._spread(
            "headrace_queue_time", "time from admission to dispatch", WAIT_BOUNDS_S
        )
        self.admission_refusals = counter(
            meter, "admission_refusals", "requests refused at admission, by reason"
        )
        self.leaderships = counter(meter, "leaderships", "partitions whose lead this process took")
        self.takeovers = counter(meter, "takeovers", "requests taken over from another scheduler")
        self.worker_losses = counter(meter, "worker_losses", "workers lost with running requests")
        self.preemptions_asked = counter(
            meter, "preemptions_asked", "requests asked to make room for a more important one"
        )
        self.promotions = counter(meter, "promotions", "requests that went first: overdue")
        self.dispatch_batch_size = self._spread(
            "headrace_dispatch_batch_size", "requests of one Assign", BATCH_BOUNDS, ""
        )

    def _add_requests(self, meter: Meter) -> None:
        self.num_streams = Gauge(meter, "headrace_num_streams", "client streams open")
        self.request_success = self._tally(
            "request_success", "requests finished, by finish reason"
        )
        self.requests_ended = self._tally("requests_ended", "requests ended, by final status")
        self.requests_failed = counter(meter, "requests_failed", "requests that failed, by reason")
        self.dead_letters = counter(meter, "dead_letters", "requests set aside as poison")
        self.prompt_tokens = self._tally("prompt_tokens", "prompt tokens taken up")
        self.generation_tokens = self._tally("generation_tokens", "tokens generated")
        self.time_to_first_token = self._spread(
            "headrace_time_to_first_token", "time from arrival to the first token", WAIT_BOUNDS_S
        )
        self.e2e_request_latency = self._spread(
            "headrace_e2e_request_latency", "time from arrival to the end", WAIT_BOUNDS_S
        )
        self._add_pool(meter)
        self._add_conventions()

    def _add_pool(self, meter: Meter) -> None:
        """What a gateway says of all that is behind it: the signals of the inference extension's model server protocol."""
        self.pool_requests_queued = Gauge(
            meter, "headrace_pool_requests_queued", "requests in the queue behind this gateway"
        )
        self.pool_requests_running = Gauge(
            meter, "headrace_pool_requests_running", "requests on workers behind this gateway"
        )
        self.pool_kv_cache_usage = Gauge(
            meter, "headrace_pool_kv_cache_usage_ratio", "share of all workers' KV blocks in use"
        )

    def _add_conventions(self) -> None:
        """Histograms that OpenTelemetry names and gives the bounds of; ours have the longer tails."""
        self.rpc_server_call_duration = self._spread(
            "rpc.server.call.duration", "time of a call", WAIT_BOUNDS_S
        )
        self.http_server_request_duration = self._spread(
            "http.server.request.duration",
            "time of an exchange, a stream's to its end",
            WAIT_BOUNDS_S,
        )
        self.gen_ai_request_duration = self._spread(
            "gen_ai.server.request.duration",
            "time from arrival to the end",
            GEN_AI_DURATION_BOUNDS_S,
        )
        self.gen_ai_time_to_first_token = self._spread(
            "gen_ai.server.time_to_first_token",
            "time from arrival to the first token",
            GEN_AI_FIRST_TOKEN_BOUNDS_S,
        )
        self.gen_ai_time_per_output_token = self._spread(
            "gen_ai.server.time_per_output_token",
            "mean time between tokens after the first",
            GEN_AI_TOKEN_BOUNDS_S,
        )

    def _add_engine(self, meter: Meter) -> None:
        self.kv_cache_usage = Gauge(
            meter, "headrace_kv_cache_usage_ratio", "share of KV blocks in use"
        )
        self.kv_blocks_used = Gauge(meter, "headrace_kv_blocks_used", "KV blocks in use")
        self.kv_blocks_total = Gauge(meter, "headrace_kv_blocks", "KV blocks in the pool")
        self.step_age = Gauge(
            meter, "headrace_step_age", "age of the last engine step while there is work", "s"
        )
        self.step_time = seconds(meter, "step_time", "time of an engine step", STEP_BOUNDS_S)
        self.batch_size = sizes(meter, "batch_size", "sequences of a step", BATCH_BOUNDS)
        self.step_tokens = sizes(meter, "step_tokens", "tokens computed by a step", TOKEN_BOUNDS)
        self.row_failures = counter(
            meter, "row_failures", "sequences that failed alone, by reason"
        )

    def _add_preemption(self, meter: Meter) -> None:
        self.num_preemptions = counter(
            meter, "num_preemptions", "requests that lost their blocks to older ones"
        )
        self.swapped_blocks = counter(
            meter, "swapped_blocks", "blocks saved to host memory by pre-emptions"
        )
        self.recomputed_tokens = counter(
            meter, "recomputed_tokens", "tokens computed that had been computed before"
        )

    def _add_prefix_cache(self, meter: Meter) -> None:
        self.prefix_cache_queries = counter(
            meter, "prefix_cache_queries", "prompt tokens looked for in the prefix cache"
        )
        self.prefix_cache_hits = counter(
            meter, "prefix_cache_hits", "prompt tokens found in the prefix cache"
        )
        self.prefix_cache_evictions = counter(
            meter, "prefix_cache_evictions", "blocks that left the prefix cache"
        )
        self.response_cache_lookups = counter(
            meter, "response_cache_lookups", "requests looked for in the response cache, by result"
        )
        self.disk_cache_hits = counter(
            meter, "disk_cache_hits", "blocks that came back to the prefix cache from disk"
        )
        self.kv_block_lifetime = seconds(
            meter, "kv_block_lifetime", "time that a block was in the prefix cache", WAIT_BOUNDS_S
        )

    def _add_answers(self, meter: Meter) -> None:
        """Of a sample of the requests: a change of weights, kernels or settings that harms answers shows here."""
        self.generated_perplexity = sizes(
            meter,
            "generated_perplexity",
            "perplexity of generated text to the model itself",
            PERPLEXITY_BOUNDS,
        )
        self.generated_distinct = sizes(
            meter,
            "generated_distinct_ratio",
            "share of different sequences of n tokens in an answer",
            SHARE_BOUNDS,
        )

    def _add_links(self, meter: Meter) -> None:
        self.log_append_time = self._spread(
            "headrace_log_append", "time of an append to a reply log", STEP_BOUNDS_S
        )
        self.redis_errors = Total(meter, "headrace_redis_errors", "errors of Redis commands")
        self.session_reconnects = counter(
            meter, "session_reconnects", "sessions between worker and scheduler begun again"
        )

    def _add_machine(self, meter: Meter) -> None:
        """Process figures have the conventions' names; a device is an accelerator, or the machine that stands in for it."""
        self.process_cpu_time = Total(meter, "process.cpu.time", "CPU time used", "s")
        self.process_memory = Gauge(meter, "process.memory.usage", "resident memory", "By")
        self.process_descriptors = Gauge(
            meter, "process.open_file_descriptor.count", "open descriptors"
        )
        self.process_threads = Gauge(meter, "process.thread.count", "threads")
        self.device_memory_used = Gauge(
            meter, "headrace_device_memory_used", "memory of the device in use", "By"
        )
        self.device_memory_total = Gauge(
            meter, "headrace_device_memory", "memory of the device", "By"
        )
        self.device_utilization = Gauge(
            meter, "headrace_device_utilization_ratio", "share of time in which the device worked"
        )
        self.device_occupancy = Gauge(
            meter, "headrace_device_sm_occupancy_ratio", "share of an accelerator's warps in use"
        )

    def _tally(self, name: str, description: str) -> Tally:
        kept = Tally(f"headrace_{name}", description)
        self._kept.append(kept)
        return kept

    def _spread(
        self, name: str, description: str, bounds: Sequence[float], unit: str = "s"
    ) -> Spread:
        kept = Spread(name, description, unit, bounds)
        self._kept.append(kept)
        return kept

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """The text for Prometheus and its content type. Any thread may ask."""
        encode, content_type = choose_encoder(accept)
        with self._scraping:
            return encode(self._registry), content_type

    def shutdown(self, timeout_s: float) -> None:
        """Send what is left, within ``timeout_s``. Blocks."""
        self._provider.shutdown(timeout_millis=timeout_s * 1000)
