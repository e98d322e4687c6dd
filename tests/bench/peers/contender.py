"""What is compared: an engine with a weight format, how it is brought up, and what can be asked of it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from tests.bench.measure import Answer


class Running(Protocol):
    """A contender that serves."""

    version: str
    started_s: float

    async def run(
        self, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
    ) -> list[Answer]:
        """All prompts, ``concurrency`` at a time, ``output_tokens`` greedy tokens each whatever they are."""
        ...

    def peak_mb(self) -> float:
        """The most memory held resident so far, by all its processes that still live."""
        ...


@dataclass(frozen=True)
class Contender:
    """``bits`` of a weight, as stored: formats of more bits may be beaten by one of fewer, but not the reverse."""

    name: str
    engine: str
    weights: str
    bits: int
    bring_up: Callable[[Path], AbstractAsyncContextManager[Running]]
    """Takes the folder of the model's checkpoint."""


def tree_peak_mb(pid: int) -> float:
    """The most memory that a process and its descendants have held."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(_peak_kb(member.pid) for member in family) / 1024


def _peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    # A process that has just ended has a status without memory.
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
