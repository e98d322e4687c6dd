"""What a comparison comes to: a table, ratios against the best peer, JSON to keep, a plot."""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tests.bench.measure import Figures
from tests.bench.peers.contender import Contender

OURS = "headrace"


@dataclass
class Result:
    """One contender's runs: figures by concurrency, a row for each round, and why a round ended early."""

    contender: Contender
    version: str = ""
    started_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    rounds: dict[int, list[Figures]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def is_whole(self, levels: Sequence[int]) -> bool:
        """Whether some round was measured at each of the ``levels``, to its end."""
        return bool(self.peak_mb) and all(level in self.rounds for level in levels)

    def median(self, concurrency: int) -> dict[str, float]:
        """Of each figure over the rounds."""
        rows = [figures.as_dict() for figures in self.rounds[concurrency]]
        return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def table(results: Sequence[Result]) -> str:
    """Markdown: a row for each contender, numbers at each concurrency."""
    levels = list(results[0].rounds)
    at = ", ".join(map(str, levels))
    columns = {
        "tokens/s": ("output_tokens_per_s", 0),
        "TTFT p50, ms": ("ttft_p50_ms", 0),
        "ITL p50, ms": ("itl_p50_ms", 1),
        "ITL p99, ms": ("itl_p99_ms", 0),
    }
    lines = [
        f"| at {at} in flight | " + " | ".join(columns) + " | start, s | peak, MB |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for result in results:
        medians = [result.median(level) for level in levels]
        cells = [
            ", ".join(f"{median[name]:.{digits}f}" for median in medians)
            for name, digits in columns.values()
        ]
        cells += [f"{statistics.median(result.started_s):.1f}", f"{max(result.peak_mb):.0f}"]
        lines.append(f"| {result.contender.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratios(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Ours over the best peer whose weights have as many bits or more, at each concurrency."""
    found = []
    for mine in results:
        peers = [
            result
            for result in results
            if result.contender.engine != OURS and result.contender.bits >= mine.contender.bits
        ]
        if mine.contender.engine != OURS or not peers:
            continue
        for level in mine.rounds:
            fastest = max(peers, key=lambda peer: peer.median(level)["output_tokens_per_s"])
            smoothest = min(peers, key=lambda peer: peer.median(level)["itl_p99_ms"])
            rate = mine.median(level)["output_tokens_per_s"]
            found.append(
                {
                    "contender": mine.contender.name,
                    "concurrency": level,
                    "fastest_peer": fastest.contender.name,
                    "throughput_ratio": rate / fastest.median(level)["output_tokens_per_s"],
                    "smoothest_peer": smoothest.contender.name,
                    "itl_p99_ratio": mine.median(level)["itl_p99_ms"]
                    / smoothest.median(level)["itl_p99_ms"],
                }
            )
    return found


def said(ratio: Mapping[str, Any]) -> str:
    """One ratio as a sentence."""
    return (
        f"{ratio['contender']} at {ratio['concurrency']}: {ratio['throughput_ratio']:.2f} times the tokens/s of"
        f" {ratio['fastest_peer']}, {ratio['itl_p99_ratio']:.2f} times the ITL p99 of {ratio['smoothest_peer']}"
    )


def kept(
    model: str, seed: int, results: Sequence[Result], whole: Sequence[Result]
) -> dict[str, Any]:
    """For JSON: everything measured, with versions and the machine; ratios of those that are ``whole``."""
    return {
        "model": model,
        "seed": seed,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "cores": psutil.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "ratios": ratios(whole),
        "contenders": [
            {
                "name": result.contender.name,
                "weights": result.contender.weights,
                "version": result.version,
                "started_s": result.started_s,
                "peak_mb": result.peak_mb,
                "failures": result.failures,
                "rounds": {
                    level: [asdict(figures) for figures in rounds]
                    for level, rounds in result.rounds.items()
                },
            }
            for result in results
        ],
    }


def write(
    folder: Path,
    name: str,
    model: str,
    seed: int,
    results: Sequence[Result],
    whole: Sequence[Result],
) -> None:
    """``NAME.json`` of all in ``folder``, and ``NAME.png`` of those that are ``whole``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(kept(model, seed, results, whole), indent=1)
    (folder / f"{name}.json").write_text(text + "\n")
    if whole:
        _plot(folder / f"{name}.png", model, whole)


def _plot(path: Path, model: str, results: Sequence[Result]) -> None:
    # Only here: loading it takes a second.
    import matplotlib.pyplot as plt

    levels = list(results[0].rounds)
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    width = 0.8 / len(results)
    for place, result in enumerate(results):
        rates = [result.median(level)["output_tokens_per_s"] for level in levels]
        positions = [at + place * width for at in range(len(levels))]
        axes.bar(positions, rates, width, label=result.contender.name)
    axes.set_xticks([at + 0.4 - width / 2 for at in range(len(levels))], map(str, levels))
    axes.set_xlabel("requests in flight")
    axes.set_ylabel("output tokens/s")
    axes.set_title(model)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
