"""What a run was like: by class, by tenant, over time. Tables for people, plots for documents."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.domain import Priority
from tests.bench.simulate.world import Depth, Outcome, World


@dataclass(frozen=True)
class Run:
    """A policy's run."""

    policy: str
    outcomes: Sequence[Outcome]
    depth: Depth
    served: Mapping[str, Sequence[tuple[float, int]]]
    took_s: float
    num_plans: int

    @classmethod
    def of(cls, policy: str, world: World, outcomes: Sequence[Outcome], took_s: float) -> "Run":
        """From a world that has come to its end."""
        return cls(policy, outcomes, world.depth, world.served, took_s, world.num_plans)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share stays under; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def jain(shares: Sequence[float]) -> float:
    """Jain's index of equality: 1 when all are equal, 1/n when one has everything."""
    total = sum(shares)
    return total * total / (len(shares) * sum(one * one for one in shares)) if total else 1.0


def table(runs: Sequence[Run]) -> str:
    """Latency and fate by policy and class, in Markdown."""
    lines = [
        "| policy | class | requests | TTFT p50 | TTFT p99 | longest wait | finished in time | refused | made room |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for priority in sorted(Priority, reverse=True):
            of_class = [one for one in run.outcomes if one.arrival.priority is priority]
            if of_class:
                lines.append(f"| {run.policy} | {priority.name} | {_row(of_class)} |")
        lines.append(f"| {run.policy} | all | {_row(run.outcomes)} |")
    return "\n".join(lines)


def _row(outcomes: Sequence[Outcome]) -> str:
    first_s = [one.first_token_s for one in outcomes if one.first_token_s is not None]
    waits_s = [one.started_s for one in outcomes if one.started_s is not None]
    good = sum(one.is_good for one in outcomes) / len(outcomes)
    refused = sum(one.end == "refused" for one in outcomes) / len(outcomes)
    moved = sum(one.num_preempted > 0 for one in outcomes) / len(outcomes)
    return (
        f"{len(outcomes)} | {percentile(first_s, 0.5):.2f} s | {percentile(first_s, 0.99):.2f} s |"
        f" {max(waits_s, default=0.0):.1f} s | {good:.1%} | {refused:.1%} | {moved:.1%}"
    )


def tenant_table(runs: Sequence[Run], most: int = 6) -> str:
    """What tenants got, those with most requests first, in Markdown."""
    lines = [
        "| policy | tenant | requests | TTFT p50 | TTFT p99 | finished in time | weighted tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        by_tenant: dict[str, list[Outcome]] = {}
        for one in run.outcomes:
            by_tenant.setdefault(one.arrival.tenant, []).append(one)
        for tenant in sorted(by_tenant, key=lambda name: -len(by_tenant[name]))[:most]:
            outcomes = by_tenant[tenant]
            first_s = [one.first_token_s for one in outcomes if one.first_token_s is not None]
            good = sum(one.is_good for one in outcomes) / len(outcomes)
            tokens = sum(tokens for _, tokens in run.served.get(tenant, ()))
            lines.append(
                f"| {run.policy} | {tenant} | {len(outcomes)} | {percentile(first_s, 0.5):.2f} s |"
                f" {percentile(first_s, 0.99):.2f} s | {good:.1%} | {tokens} |"
            )
    return "\n".join(lines)


def length_table(runs: Sequence[Run], bounds: Sequence[int] = (256, 1024, 4096)) -> str:
    """Times to first token by length of the prompt, and tokens generated per second, in Markdown."""
    names = [*(f"<={bound}" for bound in bounds), f">{bounds[-1]}"]
    lines = [
        f"| policy | tokens/s | {' | '.join(f'TTFT p50, p99: {name}' for name in names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for run in runs:
        first_s: list[list[float]] = [[] for _ in names]
        for one in run.outcomes:
            if one.first_token_s is not None:
                first_s[bisect_left(bounds, one.arrival.prompt_tokens)].append(one.first_token_s)
        last_s = max(
            (one.arrival.at_s + (one.ended_s or 0.0) for one in run.outcomes), default=1.0
        )
        rate = sum(one.tokens for one in run.outcomes) / last_s
        cells = [f"{percentile(s, 0.5):.2f}, {percentile(s, 0.99):.2f} s" for s in first_s]
        lines.append(f"| {run.policy} | {rate:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(runs: Sequence[Run], path: Path) -> None:
    """Waiting requests over time, times to first token by class, and tenants' tokens over time, for each policy."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        3, len(runs), figsize=(4 * len(runs), 8), squeeze=False, sharey="row"
    )
    for column, run in enumerate(runs):
        depth, latency, share = (axes[row][column] for row in range(3))
        depth.set_title(run.policy)
        depth.plot(run.depth.at_s, run.depth.waiting, linewidth=0.8)
        for priority in sorted(Priority, reverse=True):
            first_s = sorted(
                one.first_token_s
                for one in run.outcomes
                if one.arrival.priority is priority and one.first_token_s is not None
            )
            shares = [(index + 1) / len(first_s) for index in range(len(first_s))]
            latency.plot(first_s, shares, label=priority.name)
        for tenant in sorted(run.served, key=lambda name: -len(run.served[name]))[:6]:
            total, times, totals = 0, [], []
            for at_s, tokens in sorted(run.served[tenant]):
                total += tokens
                times.append(at_s)
                totals.append(total)
            share.plot(times, totals, label=tenant)
        latency.set_xscale("log")
        latency.set_xlabel("time to first token (s)")
        share.set_xlabel("time (s)")
        latency.legend(fontsize=7)
        share.legend(fontsize=7)
    axes[0][0].set_ylabel("waiting requests")
    axes[1][0].set_ylabel("share of requests")
    axes[2][0].set_ylabel("weighted tokens served")
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    pyplot.close(figure)
