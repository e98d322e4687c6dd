"""What arrives when: a trace as a file, a line per request."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from common.domain import Priority


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request. ``output_tokens`` is what it will generate, which nobody is told; ``deadline_s`` is relative, 0: none."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: Priority
    tenant: str
    deadline_s: float = 0.0


_NAMES = [field.name for field in fields(Arrival)]


def write_trace(path: Path, arrivals: Iterable[Arrival]) -> None:
    """Write a trace as CSV."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_NAMES)
        for one in arrivals:
            rows.writerow(
                value.name if isinstance(value, Priority) else value for value in astuple(one)
            )


def read_trace(path: Path) -> Sequence[Arrival]:
    """A trace from CSV, in the order of arrival."""
    with path.open(newline="") as file:
        arrivals = [
            Arrival(
                float(row["at_s"]),
                int(row["prompt_tokens"]),
                int(row["output_tokens"]),
                int(row["max_tokens"]),
                Priority[row["priority"]],
                row["tenant"],
                float(row["deadline_s"]),
            )
            for row in csv.DictReader(file)
        ]
    return sorted(arrivals, key=lambda one: one.at_s)
