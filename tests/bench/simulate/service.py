"""How long a worker computes: fitted to steps that a real one was measured at.

step = base + row * (rows that decode) + token * (prompt tokens)
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Seconds of a step's parts, and what a worker holds at once."""

    base_s: float
    row_s: float
    token_s: float
    max_seqs: int = 64
    kv_blocks: int = 4096
    block_size: int = 16
    max_batch_tokens: int = 512

    def step_s(self, rows: int) -> float:
        """A step in which so many rows decode."""
        return self.base_s + self.row_s * rows

    def prefill_s(self, tokens: int) -> float:
        """What a prompt adds to the steps that carry it."""
        return self.token_s * tokens

    def cost_s(self, prompt_tokens: int, output_tokens: int) -> float:
        """What a request takes of a worker that is full."""
        share_s = self.step_s(self.max_seqs) / self.max_seqs
        return self.prefill_s(prompt_tokens) + output_tokens * share_s

    def faster(self, factor: float) -> Self:
        """The same worker on a machine so many times as fast."""
        return replace(
            self,
            base_s=self.base_s / factor,
            row_s=self.row_s / factor,
            token_s=self.token_s / factor,
        )

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=2))

    @classmethod
    def read(cls, path: Path) -> Self:
        """From JSON."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One kind of step: its rows, its prompt tokens, its median time."""

    rows: int
    tokens: int
    took_s: float


def fit(steps: Sequence[MeasuredStep]) -> ServiceTimes:
    """The times that explain ``steps`` best, each step weighing by how long it takes (least squares of ratios)."""
    rows = [(1 / s.took_s, s.rows / s.took_s, s.tokens / s.took_s) for s in steps]
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(3)] for i in range(3)]
    right = [sum(row[i] for row in rows) for i in range(3)]
    base_s, row_s, token_s = _solve(matrix, right)
    return ServiceTimes(max(0.0, base_s), max(0.0, row_s), max(0.0, token_s))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots; three equations need no library."""
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(rows[line][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for line in range(size):
            if line != column:
                factor = rows[line][column] / rows[column][column]
                rows[line] = [
                    a - factor * b for a, b in zip(rows[line], rows[column], strict=True)
                ]
    return [rows[index][size] / rows[index][index] for index in range(size)]
