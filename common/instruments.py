"""What metrics are made of: instruments, the bounds of their buckets, and labels that are bounded sets."""

from collections.abc import Callable, Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from common.domain import Priority
from common.tallies import Labels

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
# From a model that is sure of itself to one that guesses among its vocabulary.
PERPLEXITY_BOUNDS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 35.0, 60.0, 100.0, 1e3, 1e5)
SHARE_BOUNDS = (*(tenth / 10 for tenth in range(1, 10)), 0.95, 1.0)
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# As the GenAI conventions give them.
GEN_AI_DURATION_BOUNDS_S = tuple(0.01 * 2**power for power in range(14))
GEN_AI_FIRST_TOKEN_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
GEN_AI_TOKEN_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
)
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
        self._create(meter, name, description, unit)

    def watch(self, read: Read) -> None:
        """Report what ``read`` returns, at each look."""
        self._reads.append(read)

    def _create(self, meter: Meter, name: str, description: str, unit: str) -> None:
        meter.create_observable_gauge(name, [self._observe], unit, description)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        for read in self._reads:
            for value, labels in read():
                yield Observation(value, dict(labels))


class Total(Gauge):
    """A count that somebody keeps anyway and that is asked for when somebody looks."""

    def _create(self, meter: Meter, name: str, description: str, unit: str) -> None:
        meter.create_observable_counter(name, [self._observe], unit, description)


def counter(meter: Meter, name: str, description: str) -> Counter:
    return meter.create_counter(f"headrace_{name}", description=description)


def seconds(meter: Meter, name: str, description: str, bounds: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        f"headrace_{name}",
        unit="s",
        description=description,
        explicit_bucket_boundaries_advisory=bounds,
    )


def sizes(meter: Meter, name: str, description: str, bounds: Sequence[float]) -> Histogram:
    return meter.create_histogram(
        f"headrace_{name}", description=description, explicit_bucket_boundaries_advisory=bounds
    )
