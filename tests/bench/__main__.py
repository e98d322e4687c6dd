"""``python -m tests.bench``: tokens per second, time to first token and inter-token time through the whole stack.

Starts a stack of its own (or measures ``--target``), warms it up, runs the workload of ``tests.bench.workload`` at
each concurrency, and prints a table. ``--engine simulated`` measures the control plane: tokens cost the worker
next to nothing, so what is left is client, gateway, scheduler and Redis. Figures of different machines, or of a
busy one, do not compare.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.client import AsyncClient
from tests.bench.costs import Costs, per_token_us
from tests.bench.measure import Figures, run_closed_loop
from tests.bench.workload import NUM_REQUESTS, make_workload
from tests.support.stack import SIMULATED, Stack, running_stack

FEW_REQUESTS = 12  # at concurrency 1 the whole workload would take long and say no more


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    options = _parser().parse_args(arguments)
    began_s = time.perf_counter()
    with _target(options) as (target, stack):
        started_s = time.perf_counter() - began_s
        costs = Costs(stack)
        runs, cpu_us = asyncio.run(_measure(target, options, costs))
        facts = {
            "started_s": started_s if stack else None,
            "peak_mb": costs.peak_mb(),
            "cpu_us_per_token": cpu_us,
        }
    _print_table(runs, facts)
    if options.json:
        results = [figure.as_dict() for figure in runs]
        options.json.write_text(json.dumps({"runs": results, **facts}, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--target", help="address of a running gateway; default: a stack of its own"
    )
    parser.add_argument("--engine", choices=["model", "simulated"], default="model")
    parser.add_argument(
        "--concurrency", type=_numbers, help="default 1,8,32; 1,64 for the simulated engine"
    )
    parser.add_argument("--repeats", type=int, default=2, help="runs of each; medians are shown")
    parser.add_argument("--seed", type=int, default=7, help="of prompts and their lengths")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("worker_flags", nargs="*", help="after --: flags of the stack's worker")
    return parser


@contextlib.contextmanager
def _target(options: argparse.Namespace) -> Iterator[tuple[str, Stack | None]]:
    if options.target:
        yield options.target, None
        return
    flags = [*(SIMULATED if options.engine == "simulated" else ()), *options.worker_flags]
    with running_stack(worker_flags=flags, ready_within_s=600) as stack:
        yield stack.targets[0], stack


async def _measure(
    target: str, options: argparse.Namespace, costs: Costs
) -> tuple[list[Figures], dict[str, dict[str, float]]]:
    """The figures at each concurrency, and what a token cost each process meanwhile."""
    default = [1, 64] if options.engine == "simulated" else [1, 8, 32]
    async with AsyncClient(target) as client:
        (model,) = [model.name for model in await client.models()]
        workload = await make_workload(client, model, seed=options.seed)
        await run_closed_loop(client, model, workload, concurrency=4, requests=4)
        figures, cpu_us = [], {}
        for concurrency in options.concurrency or default:
            requests = FEW_REQUESTS if concurrency == 1 else NUM_REQUESTS
            before = costs.cpu_s()
            runs = [
                await run_closed_loop(
                    client, model, workload, concurrency=concurrency, requests=requests
                )
                for _ in range(options.repeats)
            ]
            tokens = options.repeats * requests * workload.output_tokens
            cpu_us[str(concurrency)] = per_token_us(before, costs.cpu_s(), tokens)
            figures.append(_median(runs))
            rate = figures[-1].output_tokens_per_s
            print(f"concurrency {concurrency}: {rate:.1f} tokens/s", file=sys.stderr, flush=True)
        return figures, cpu_us


def _median(runs: Sequence[Figures]) -> Figures:
    values = zip(*(run.as_dict().values() for run in runs), strict=True)
    concurrency, requests, *times = (statistics.median(column) for column in values)
    return Figures(int(concurrency), int(requests), *times)


def _print_table(figures: Sequence[Figures], facts: Mapping[str, Any]) -> None:
    columns = ("concurrency", "tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99 (ms)")
    print("  ".join(f"{name:>12}" for name in columns))
    for figure in figures:
        concurrency, _, *numbers = figure.as_dict().values()
        print("  ".join([f"{concurrency:>12}", *(f"{number:>12.1f}" for number in numbers)]))
    if facts["started_s"] is None:
        return
    print(f"start to ready: {facts['started_s']:.1f} s")
    print(
        "peak memory, MB: " + _listed({**facts["peak_mb"], "all": sum(facts["peak_mb"].values())})
    )
    for concurrency, spent in facts["cpu_us_per_token"].items():
        print(f"CPU per token at {concurrency}, µs: " + _listed(spent))


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in values.items())


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
