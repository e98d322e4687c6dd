"""What a led partition shows of itself: metrics and spans, with their labels filled in."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from common import telemetry_names as names
from common.domain import Partition, Priority, TraceContext
from common.logs import Log
from common.metrics import Metrics, class_labels, model_labels
from common.request_status import RequestStatus
from common.tracing import Tracing
from scheduler.led_request import LedRequest
from scheduler.request_spans import RequestSpans


def show_counters(metrics: Metrics, model: str) -> None:
    """Let counters of a model begin at 0: what appears with its first event shows no increase by it."""
    labels = model_labels(model)
    for counter in (
        metrics.takeovers,
        metrics.worker_losses,
        metrics.dead_letters,
        metrics.prompt_tokens,
        metrics.generation_tokens,
    ):
        counter.add(0, labels)
    for status in RequestStatus:
        if status.is_final:
            metrics.requests_ended.add(0, {**labels, "status": status.value})
    for priority in Priority:
        metrics.dispatched.add(0, class_labels(model, priority))


class PartitionTelemetry:
    """Metrics and spans of one partition."""

    def __init__(self, partition: Partition, metrics: Metrics, tracing: Tracing, log: Log) -> None:
        """Labels are of the partition's model."""
        self._partition = partition
        self._metrics = metrics
        self._tracing = tracing
        self._labels = model_labels(partition.model)
        self.log = log.bind(partition=str(partition))
        self.spans = RequestSpans(partition, tracing)

    def appended(self, took_s: float) -> None:
        """An append to a reply log took so long."""
        self._metrics.log_append_time.record(took_s, self._labels)

    def taken_over(self, count: int) -> None:
        """Requests came from another scheduler."""
        self._metrics.takeovers.add(count, self._labels)

    def worker_lost(self) -> None:
        """A worker died while it ran requests."""
        self._metrics.worker_losses.add(1, self._labels)

    def ended(self, status: RequestStatus) -> None:
        """A request has its terminal record."""
        self._metrics.requests_ended.add(1, {**self._labels, "status": status.value})
        if status is RequestStatus.DEAD:
            self._metrics.dead_letters.add(1, self._labels)

    def logged(self, prompt_tokens: int, generation_tokens: int) -> None:
        """An append was confirmed: what it added to the usage of its requests."""
        if prompt_tokens:
            self._metrics.prompt_tokens.add(prompt_tokens, self._labels)
        if generation_tokens:
            self._metrics.generation_tokens.add(generation_tokens, self._labels)

    def queued(self, request: LedRequest, now_s: float) -> None:
        """A request was dispatched: the wait that is over, the same in span and metric. The first wait is what counts."""
        since_s = request.waiting_since_s
        if request.first_dispatch_s is None:
            request.first_dispatch_s, since_s = now_s, request.arrival_s
            self._metrics.queue_time.record(
                now_s - since_s, class_labels(self._partition.model, request.header.priority)
            )
        if since_s is not None:
            self.spans.waited(request, since_s, now_s, "dispatched")
        request.waiting_since_s = None

    def dispatched(
        self,
        parent: TraceContext,
        attributes: Mapping[str, str | int],
        picked_s: float,
        sent_s: float,
    ) -> TraceContext:
        """A request went to a worker; answers the context under which the worker's span starts."""
        return self._tracing.record_span(
            names.SpanName.DISPATCH,
            start_s=picked_s,
            end_s=sent_s,
            parent=parent,
            attributes=attributes,
        )

    def batch(
        self,
        batch_id: str,
        worker_id: str,
        reason: str,
        members: Sequence[tuple[Priority, TraceContext]],
        picked_s: float,
        sent_s: float,
    ) -> TraceContext:
        """A batch went to a worker: a span of its own, linked to the spans of its requests."""
        self._metrics.dispatch_batch_size.record(len(members), self._labels)
        for priority, _ in members:
            self._metrics.dispatched.add(1, class_labels(self._partition.model, priority))
        return self._tracing.record_span(
            names.SpanName.BATCH,
            start_s=picked_s,
            end_s=sent_s,
            links=[context for _, context in members],
            attributes={
                names.HEADRACE_BATCH_ID: batch_id,
                names.HEADRACE_BATCH_SIZE: len(members),
                names.HEADRACE_WORKER_ID: worker_id,
                names.HEADRACE_PLAN_REASON: reason,
                names.HEADRACE_PARTITION: str(self._partition),
            },
        )


class PartitionGauges:
    """Gauges over all partitions that are led now; a partition that is not led any more vanishes from them."""

    def __init__(self, metrics: Metrics) -> None:
        """Watched from here on."""
        self._reads: dict[Partition, Callable[[], Mapping[str, Mapping[Priority, int]]]] = {}
        self._num_workers: dict[Partition, Callable[[], int]] = {}
        metrics.num_requests_waiting.watch(lambda: self._read("waiting"))
        metrics.num_requests_running.watch(lambda: self._read("running"))
        metrics.num_workers.watch(self._read_workers)

    def add(
        self,
        partition: Partition,
        read: Callable[[], Mapping[str, Mapping[Priority, int]]],
        num_workers: Callable[[], int],
    ) -> None:
        """Show a partition. ``read`` answers "waiting" and "running" by class from values already counted."""
        self._reads = {**self._reads, partition: read}
        self._num_workers = {**self._num_workers, partition: num_workers}

    def remove(self, partition: Partition) -> None:
        """Show it no more."""
        self._reads = {key: read for key, read in self._reads.items() if key != partition}
        self._num_workers = {k: read for k, read in self._num_workers.items() if k != partition}

    def _read(self, what: str) -> Iterable[tuple[float, Mapping[str, str]]]:
        totals: dict[tuple[str, Priority], int] = {}
        for partition, read in self._reads.items():
            for priority, count in read()[what].items():
                key = (partition.model, priority)
                totals[key] = totals.get(key, 0) + count
        return [(count, class_labels(*key)) for key, count in totals.items()]

    def _read_workers(self) -> Iterable[tuple[float, Mapping[str, str]]]:
        totals: dict[str, int] = {}
        for partition, read in self._num_workers.items():
            totals[partition.model] = totals.get(partition.model, 0) + read()
        return [(count, model_labels(model)) for model, count in totals.items()]
