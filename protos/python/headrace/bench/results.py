"""Results of a run as a file, as a table, and beside those of another run."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headrace.bench.samples import Level

HEAD = [
    *("LOAD", "REQ", "ERR", "REQ/S", "TOK/S", "GOOD/S"),
    *("TTFT P50", "P99 MS", "TPOT P50", "P99 MS", "TOTAL P50", "P99 MS"),
]


class ResultsError(Exception):
    """A file that holds no results."""


@dataclass(frozen=True, slots=True)
class Results:
    """The levels of one run, and what was asked of it."""

    model: str
    workload: str
    levels: Sequence[Level]

    def write(self, path: Path) -> None:
        """Keep them for a comparison."""
        content = {
            "model": self.model,
            "workload": self.workload,
            "levels": [level.as_dict() for level in self.levels],
        }
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """What ``write`` kept.

        Raises:
            ResultsError: the file cannot be read, or is something else.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            levels = [Level.from_dict(one) for one in found["levels"]]
            return cls(found["model"], found["workload"], levels)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{path} holds no results: {error!r}") from error


def row(level: Level) -> list[str]:
    """One line of the table."""
    return [
        load_name(level),
        *(str(level.requests), str(level.errors)),
        *(f"{v:.1f}" for v in (level.requests_per_s, level.tokens_per_s, level.goodput_per_s)),
        *_milliseconds(level.first_p50_ms, level.first_p99_ms),
        *_milliseconds(level.per_token_p50_ms, level.per_token_p99_ms),
        *_milliseconds(level.total_p50_ms, level.total_p99_ms),
    ]


def load_name(level: Level) -> str:
    """``8`` at once, or ``2.5/s``."""
    return f"{level.load:g}/s" if level.is_open else f"{level.load:g}"


COMPARED = [
    ("TOK/S", "tokens_per_s"),
    ("GOOD/S", "goodput_per_s"),
    ("TTFT P50", "first_p50_ms"),
    ("TTFT P99", "first_p99_ms"),
    ("TPOT P50", "per_token_p50_ms"),
    ("TPOT P99", "per_token_p99_ms"),
]


def comparison(before: Results, after: Results) -> list[list[str]]:
    """For each level that both have: the later figure, and its change."""
    former = {(one.load, one.is_open): one for one in before.levels}
    rows = []
    for level in after.levels:
        other = former.get((level.load, level.is_open))
        if other is not None:
            cells = [_change(getattr(other, name), getattr(level, name)) for _, name in COMPARED]
            rows.append([load_name(level), *cells])
    return rows


def _change(before: float, after: float) -> str:
    if math.isnan(before) or math.isnan(after):
        return "-"
    if not before:
        return f"{after:.1f}"
    return f"{after:.1f} ({after / before - 1:+.1%})"


def _milliseconds(*values: float) -> list[str]:
    return ["-" if math.isnan(value) else f"{value:.1f}" for value in values]
