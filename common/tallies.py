"""Counters and histograms for what every request does: a record costs a look-up, and the state joins the SDK's metrics
when a reader collects.

OpenTelemetry's own instruments take some 10 µs a call, and a small request is counted twenty times on its way.
"""

import math
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

Labels = Mapping[str, str]

# Series of one instrument: models x classes x reasons, with room. What exceeds it is counted together, as the SDK does
# it, so that a bug in a label can never exhaust memory.
MAX_SERIES = 1000
_OVERFLOW = (("otel_metric_overflow", "true"),)

S = TypeVar("S")


class Kept(ABC, Generic[S]):
    """An instrument whose state is kept here: one ``S`` for each label set. One thread records, any may collect."""

    def __init__(self, name: str, description: str, unit: str, make: Callable[[], S]) -> None:
        """``make`` makes the state of a label set that is new."""
        self._name = name
        self._description = description
        self._unit = unit
        self._make = make
        self._start_ns = time.time_ns()
        self._series: dict[tuple[tuple[str, str], ...], S] = {}

    def _of(self, labels: Labels) -> S:
        key = tuple(sorted(labels.items()))
        found = self._series.get(key)
        if found is None:
            if len(self._series) >= MAX_SERIES:
                key = _OVERFLOW
            found = self._series.setdefault(key, self._make())
        return found

    def collect(self) -> Metric | None:
        """The state now, or None if nothing was recorded.

        A record under way may be in one figure and not yet in another, which the next look mends.
        """
        now_ns = time.time_ns()
        series = [(dict(key), state) for key, state in [*self._series.items()]]
        if not series:
            return None
        return Metric(self._name, self._description, self._unit, self._data(series, now_ns))

    @abstractmethod
    def _data(self, series: Sequence[tuple[dict[str, str], S]], now_ns: int) -> Sum | Histogram:
        """The points of all label sets."""


@dataclass(slots=True)
class _Count:
    value: float = 0


class Tally(Kept[_Count]):
    """A counter."""

    def __init__(self, name: str, description: str) -> None:
        """Nothing yet."""
        super().__init__(name, description, "", _Count)

    def add(self, amount: float, labels: Labels) -> None:
        """So many more."""
        self._of(labels).value += amount

    def _data(self, series: Sequence[tuple[dict[str, str], _Count]], now_ns: int) -> Sum:
        points = [
            NumberDataPoint(labels, self._start_ns, now_ns, count.value)
            for labels, count in series
        ]
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)


class _Buckets:
    """The values of one label set, by bucket."""

    __slots__ = ("buckets", "max", "min", "sum")

    def __init__(self, num_buckets: int) -> None:
        self.buckets = [0] * num_buckets
        self.sum = 0.0
        self.min = math.inf
        self.max = -math.inf


class Spread(Kept[_Buckets]):
    """A histogram."""

    def __init__(self, name: str, description: str, unit: str, bounds: Sequence[float]) -> None:
        """``bounds`` are the buckets' upper ends."""
        self._bounds = tuple(bounds)
        super().__init__(name, description, unit, lambda: _Buckets(len(self._bounds) + 1))

    def record(self, value: float, labels: Labels, count: int = 1) -> None:
        """The same value so many times: a step of 64 sequences is one record, and not 64."""
        found = self._of(labels)
        found.buckets[bisect_left(self._bounds, value)] += count
        found.sum += value * count
        found.min = min(found.min, value)
        found.max = max(found.max, value)

    def _data(self, series: Sequence[tuple[dict[str, str], _Buckets]], now_ns: int) -> Histogram:
        points = [self._point(labels, found, now_ns) for labels, found in series]
        return Histogram(points, AggregationTemporality.CUMULATIVE)

    def _point(self, labels: dict[str, str], found: _Buckets, now_ns: int) -> HistogramDataPoint:
        buckets = tuple(found.buckets)
        return HistogramDataPoint(
            attributes=labels,
            start_time_unix_nano=self._start_ns,
            time_unix_nano=now_ns,
            count=sum(buckets),
            sum=found.sum,
            bucket_counts=buckets,
            explicit_bounds=self._bounds,
            min=found.min,
            max=found.max,
        )
