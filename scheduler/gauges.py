"""Gauges over the partitions that this process leads: what is led no more, or not for certain, vanishes from them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from common.domain import Clock, Partition, Priority
from common.metrics import Metrics, class_labels, model_labels
from common.request_status import RequestStatus
from scheduler.led_request import LedRequest

OTHER_TENANTS = "other"
# Gauges of one scrape are read one after the other; they are to show one moment, and to cost one count.
_ONE_SCRAPE_S = 0.1

Sample = tuple[float, Mapping[str, str]]


@dataclass(slots=True)
class Figures:
    """What one partition shows at one moment."""

    num_workers: int = 0
    num_orphans: int = 0
    waiting: Counter[Priority] = field(default_factory=lambda: Counter(dict.fromkeys(Priority, 0)))
    running: Counter[Priority] = field(default_factory=lambda: Counter(dict.fromkeys(Priority, 0)))
    oldest_s: dict[Priority, float] = field(default_factory=lambda: dict.fromkeys(Priority, 0.0))
    tenants: Counter[tuple[str, str]] = field(default_factory=Counter)


def count_requests(
    requests: Iterable[LedRequest],
    now_s: float,
    tenant_of: Callable[[str], str],
    *,
    num_workers: int,
    num_orphans: int,
) -> Figures:
    """The figures of these requests."""
    figures = Figures(num_workers, num_orphans)
    for request in requests:
        header = request.header
        if request.status is RequestStatus.QUEUED:
            figures.waiting[header.priority] += 1
            age_s = now_s - request.arrival_s
            figures.oldest_s[header.priority] = max(age_s, figures.oldest_s[header.priority])
            figures.tenants[tenant_of(header.tenant), "waiting"] += 1
        elif request.status is RequestStatus.RUNNING:
            figures.running[header.priority] += 1
            figures.tenants[tenant_of(header.tenant), "running"] += 1
    return figures


Read = Callable[[], Figures | None]
"""A partition's figures, None while somebody else may lead it. Called from the scraping thread."""


class PartitionGauges:
    """The gauges of one process."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Watched from here on."""
        self._clock = clock
        self._reads: dict[Partition, Read] = {}
        self._last: tuple[float, Sequence[tuple[str, Figures]]] = (float("-inf"), ())
        metrics.num_requests_waiting.watch(lambda: self._by_class(lambda one: one.waiting))
        metrics.num_requests_running.watch(lambda: self._by_class(lambda one: one.running))
        metrics.queue_oldest.watch(self._oldest)
        metrics.num_workers.watch(lambda: self._by_model(lambda one: one.num_workers))
        metrics.orphaned_requests.watch(lambda: self._by_model(lambda one: one.num_orphans))
        metrics.tenant_requests.watch(self._tenants)

    def add(self, partition: Partition, read: Read) -> None:
        """Show a partition."""
        self._reads = {**self._reads, partition: read}

    def remove(self, partition: Partition) -> None:
        """Show it no more."""
        self._reads = {key: read for key, read in self._reads.items() if key != partition}

    def _look(self) -> Sequence[tuple[str, Figures]]:
        now_s = self._clock()
        if now_s - self._last[0] > _ONE_SCRAPE_S:
            found = [(partition.model, read()) for partition, read in self._reads.items()]
            self._last = (now_s, [(model, one) for model, one in found if one is not None])
        return self._last[1]

    def _by_model(self, value: Callable[[Figures], int]) -> list[Sample]:
        totals: Counter[str] = Counter()
        for model, figures in self._look():
            totals[model] += value(figures)
        return [(count, model_labels(model)) for model, count in totals.items()]

    def _by_class(self, value: Callable[[Figures], Counter[Priority]]) -> list[Sample]:
        totals: Counter[tuple[str, Priority]] = Counter()
        for model, figures in self._look():
            for priority, count in value(figures).items():
                totals[model, priority] += count
        return [(count, class_labels(*key)) for key, count in totals.items()]

    def _oldest(self) -> list[Sample]:
        oldest: dict[tuple[str, Priority], float] = {}
        for model, figures in self._look():
            for priority, age_s in figures.oldest_s.items():
                key = (model, priority)
                oldest[key] = max(age_s, oldest.get(key, 0.0))
        return [(age_s, class_labels(*key)) for key, age_s in oldest.items()]

    def _tenants(self) -> list[Sample]:
        totals: Counter[tuple[str, str, str]] = Counter()
        for model, figures in self._look():
            for (tenant, state), count in figures.tenants.items():
                totals[model, tenant, state] += count
        return [
            (count, {**model_labels(model), "tenant": tenant, "state": state})
            for (model, tenant, state), count in totals.items()
        ]
