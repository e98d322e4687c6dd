"""What a run tells: figures, and of a failure everything that is needed to understand and replay it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.growth import Growth
from tests.chaos.journal import History, Journal
from tests.chaos.schedule import Fault
from tests.chaos.settings import ChaosSettings
from tests.chaos.takeovers import percentile, takeover_times_s

_MOST_HISTORIES = 30


def figures(journal: Journal, cluster: Cluster, growth: Growth, took_s: float) -> str:
    """The run in numbers."""
    lines = [f"{took_s:.0f} s, {sum(journal.faults.values())} faults"]
    lines += [f"  {count:6d}  {name}" for name, count in sorted(journal.counts.items())]
    lines.append("longest silences between two tokens of a request:")
    lines += [
        f"  {took_s:5.1f} s  until {at_s:6.1f} s  {request_id}"
        for took_s, at_s, request_id in sorted(journal.silences, reverse=True)[:5]
    ]
    lines.append(
        "takeover (leader killed or paused, until another leads): "
        + _spread(takeover_times_s(cluster, journal.fault_lines))
    )
    lines.append(
        "recovery (end of a fault until the next token, of each model; faults that came alone):"
    )
    for kind in sorted(journal.faults):
        took = [
            max(recovery.took_s.values())
            for recovery in journal.recoveries
            if recovery.kind == kind and recovery.is_alone and recovery.took_s
        ]
        lines.append(f"  {kind:28s} {journal.faults[kind]:4d} times   {_spread(took)}")
    lines.append("processes that lived to the end (memory and descriptors, from warm to last):")
    lines += [f"  {life}" for life in growth.survivors()]
    return "\n".join(lines)


def write_failure(
    settings: ChaosSettings, journal: Journal, cluster: Cluster, faults: Sequence[Fault], text: str
) -> Path:
    """Schedule, failures with their histories, and every log, in a folder of the seed."""
    folder = settings.folder / f"seed-{settings.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule").write_text("\n".join(map(str, faults)) + "\n")
    (folder / "faults").write_text("\n".join(journal.fault_lines) + "\n")
    (folder / "figures").write_text(text + "\n")
    (folder / "failures").write_text("\n\n".join(_failures(journal)) + "\n")
    for member in [*cluster.members, *cluster.left]:
        (folder / f"{member.name}.log").write_text(member.process.log)
    (folder / "redis.log").write_text(cluster.redis.log)
    return folder


def _failures(journal: Journal) -> Iterable[str]:
    told: set[History] = set()
    for failure in journal.failures:
        history = failure.history
        yield f"FAILURE: {failure.message}" + (f"\n{history.what}" if history else "")
        if history is not None and history not in told and len(told) < _MOST_HISTORIES:
            told.add(history)
            yield "\n".join(["history of " + ", ".join(history.request_ids), *history.lines])


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    median, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return f"median {median:.2f} s, p99 {p99:.2f} s, most {max(values):.2f} s (of {len(values)})"
