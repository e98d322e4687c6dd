"""How long partitions were without a leader, read from the schedulers' logs."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tests.chaos.cluster import Cluster

# A leader that was away for less than its lease is not replaced; what comes later has another cause.
_LONGEST_S = 15.0


@dataclass(frozen=True, order=True)
class _Led:
    """A partition got or lost a leader."""

    at_s: float
    partition: str
    scheduler: str
    is_begin: bool


def takeover_times_s(cluster: Cluster, fault_lines: Iterable[str]) -> list[float]:
    """From each kill or pause of a scheduler that led to the moment when another one led the partition."""
    turns = sorted(_turns(cluster))
    times = []
    for at_s, name in _hurt(fault_lines):
        for partition in {turn.partition for turn in turns}:
            before = [
                t for t in turns if t.partition == partition and t.at_s <= at_s and t.is_begin
            ]
            after = [t for t in turns if t.partition == partition and t.at_s > at_s and t.is_begin]
            if not before or before[-1].scheduler != name or not after:
                continue
            took_s = after[0].at_s - at_s
            if took_s < _LONGEST_S:
                times.append(took_s)
    return sorted(times)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that so many are not above; None of none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def _turns(cluster: Cluster) -> Iterable[_Led]:
    for member in cluster.schedulers:
        for line in member.process.log.splitlines():
            if '"leading"' not in line and "not leading any more" not in line:
                continue
            try:
                said = json.loads(line)
            except ValueError:
                continue
            at_s = datetime.fromisoformat(said["timestamp"]).timestamp()
            is_begin = said["event"] == "leading"
            yield _Led(at_s, str(said.get("partition")), member.name, is_begin)


_HURT = re.compile(r"^(\S+) .*#\d+ (?:kill|pause)-(?:leader|scheduler) (scheduler-\d+) ")


def _hurt(fault_lines: Iterable[str]) -> Iterable[tuple[float, str]]:
    for line in fault_lines:
        if found := _HURT.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]
