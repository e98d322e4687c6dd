"""What a led partition shows of itself: metrics and spans, with their labels filled in."""

from collections.abc import Collection, Sequence

from common import telemetry_names as names
from common.domain import Partition, Priority, TraceContext
from common.logs import Log
from common.metrics import Metrics, class_labels, model_labels
from common.records import Failure
from common.request_status import RequestStatus
from common.tracing import Tracing
from scheduler.gauges import OTHER_TENANTS
from scheduler.led_request import LedRequest
from scheduler.request_spans import RequestSpans


def begin_counters(metrics: Metrics, model: str) -> None:
    """Let counters of a model begin at 0: what appears with its first event shows no increase by it."""
    labels = model_labels(model)
    for counter in (
        metrics.leaderships,
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
        of_class = class_labels(model, priority)
        metrics.dispatched.add(0, of_class)
        metrics.promotions.add(0, of_class)
        metrics.preemptions_asked.add(0, of_class)


class PartitionTelemetry:
    """Metrics and spans of one partition."""

    def __init__(
        self,
        partition: Partition,
        metrics: Metrics,
        tracing: Tracing,
        log: Log,
        tenants: Collection[str] = (),
    ) -> None:
        """Labels are of the partition's model; ``tenants`` are those that have metrics of their own."""
        self._named_tenants = frozenset(tenants)
        self._partition = partition
        self._metrics = metrics
        self._tracing = tracing
        self._labels = model_labels(partition.model)
        self.log = log.bind(partition=str(partition))
        self.spans = RequestSpans(partition, tracing)

    def leading(self) -> None:
        """This process leads the partition from here on."""
        self._metrics.leaderships.add(1, self._labels)
        self.log.info("leading")

    def appended(self, took_s: float) -> None:
        """An append to a reply log took so long."""
        self._metrics.log_append_time.record(took_s, self._labels)

    def taken_over(self, count: int) -> None:
        """Requests came from another scheduler."""
        self._metrics.takeovers.add(count, self._labels)

    def worker_lost(self) -> None:
        """A worker died while it ran requests."""
        self._metrics.worker_losses.add(1, self._labels)

    def preempted(self, priority: Priority) -> None:
        """A request was asked to make room for a more important one."""
        self._metrics.preemptions_asked.add(1, class_labels(self._partition.model, priority))

    def promoted(self, priority: Priority) -> None:
        """A request goes first because it is overdue."""
        self._metrics.promotions.add(1, class_labels(self._partition.model, priority))

    def tenant_of(self, tenant: str) -> str:
        """A tenant's label: clients can make up names, operators name those that count."""
        return tenant if tenant in self._named_tenants else OTHER_TENANTS

    def ended(self, status: RequestStatus, failure: Failure | None) -> None:
        """A request has its terminal record."""
        if failure is not None:
            self._metrics.requests_failed.add(1, {**self._labels, "reason": failure.reason})
        self._metrics.requests_ended.add(1, {**self._labels, "status": status.value})
        if status is RequestStatus.DEAD:
            self._metrics.dead_letters.add(1, self._labels)

    def logged(self, tenant: str, prompt_tokens: int, generation_tokens: int) -> None:
        """An append was confirmed: what it added to the usage of a tenant's requests, by the tenant's label."""
        for kind, counter, count in (
            ("prompt", self._metrics.prompt_tokens, prompt_tokens),
            ("generation", self._metrics.generation_tokens, generation_tokens),
        ):
            if count:
                counter.add(count, self._labels)
                labels = {**self._labels, "tenant": tenant, "kind": kind}
                self._metrics.tenant_tokens.add(count, labels)

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
        self, request: LedRequest, batch_id: str, reason: str, picked_s: float, sent_s: float
    ) -> TraceContext:
        """A request went to a worker; answers the context under which the worker's span starts."""
        return self._tracing.record_span(
            names.SpanName.DISPATCH,
            start_s=picked_s,
            end_s=sent_s,
            parent=request.header.trace,
            attributes={
                names.HEADRACE_REQUEST_ID: request.key,
                names.HEADRACE_BATCH_ID: batch_id,
                names.HEADRACE_WORKER_ID: request.worker_id,
                names.HEADRACE_EPOCH: request.epoch,
                names.HEADRACE_ATTEMPT: request.attempt,
                names.HEADRACE_TOKENS_RESUMED: request.progress.next_seq,
                names.HEADRACE_PLAN_REASON: f"{reason}; {request.why}",
            },
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
