"""How many inputs were tried, by what they came over: a run tells it, and `make fuzz` asks for enough."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

TRIED: Counter[str] = Counter()
"""Inputs that the running system answered ("grpc", "http", "http2", "openapi"), and those tried in one process ("guided")."""

LEAST_ANSWERED = 10_000
"""What the running system has to answer in one run of `make fuzz`."""


Sizes = Mapping[str, tuple[float, int]]
"""Resident megabytes and open descriptors of each process."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What the processes held before and after everything."""

    before: Sizes
    after: Sizes

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {self.before[name][0]:.0f} → {megabytes:.0f} MB"
            f" and {self.before[name][1]} → {descriptors} descriptors"
            for name, (megabytes, descriptors) in self.after.items()
        )

    @property
    def most(self) -> tuple[float, int]:
        """Megabytes and descriptors by which the worst of them grew."""
        return (
            max(after[0] - self.before[name][0] for name, after in self.after.items()),
            max(after[1] - self.before[name][1] for name, after in self.after.items()),
        )


GROWTH: list[Growth] = []
"""Of the system that ran, once it has ended."""


def answered() -> int:
    """Inputs that went to the running system."""
    return TRIED.total() - TRIED["guided"]
