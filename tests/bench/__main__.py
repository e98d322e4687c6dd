"""``python -m tests.bench``: tokens per second, time to first token and inter-token time through the whole stack.

Starts a stack of its own (or measures ``--target``), warms it up, runs the workload of ``tests.bench.workload`` at
each concurrency, and prints a table. Figures of different machines, or of a busy one, do not compare.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from headrace.client import AsyncClient
from tests.bench.measure import Figures, run_closed_loop
from tests.bench.workload import NUM_REQUESTS, make_workload
from tests.support.stack import Stack, running_stack

FEW_REQUESTS = 12  # at concurrency 1 the whole workload would take long and say no more


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    options = _parser().parse_args(arguments)
    began_s = time.perf_counter()
    with _target(options) as (target, stack):
        started_s = time.perf_counter() - began_s
        figures = asyncio.run(_measure(target, options))
        facts = _facts(stack, figures, started_s)
    _print_table(figures, facts)
    if options.json:
        results = [figure.as_dict() for figure in figures]
        options.json.write_text(json.dumps({"runs": results, **facts}, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--target", help="address of a running gateway; default: a stack of its own"
    )
    parser.add_argument("--concurrency", type=_numbers, default=[1, 8, 32], help="default 1,8,32")
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
    with running_stack(worker_flags=options.worker_flags, ready_within_s=600) as stack:
        yield stack.targets[0], stack


async def _measure(target: str, options: argparse.Namespace) -> list[Figures]:
    async with AsyncClient(target) as client:
        (model,) = [model.name for model in await client.models()]
        workload = await make_workload(client, model, seed=options.seed)
        await run_closed_loop(client, model, workload, concurrency=4, requests=4)
        figures = []
        for concurrency in options.concurrency:
            requests = FEW_REQUESTS if concurrency == 1 else NUM_REQUESTS
            runs = [
                await run_closed_loop(
                    client, model, workload, concurrency=concurrency, requests=requests
                )
                for _ in range(options.repeats)
            ]
            figures.append(_median(runs))
        return figures


def _median(runs: Sequence[Figures]) -> Figures:
    values = zip(*(run.as_dict().values() for run in runs), strict=True)
    concurrency, requests, *times = (statistics.median(column) for column in values)
    return Figures(int(concurrency), int(requests), *times)


def _facts(stack: Stack | None, figures: Sequence[Figures], started_s: float) -> dict[str, float]:
    if stack is None:
        return {}
    services = {"gateway": stack.gateways, "scheduler": stack.schedulers, "worker": stack.workers}
    processes = {name: psutil.Process(service[0].pid) for name, service in services.items()}
    facts = {f"{name}_rss_mb": p.memory_info().rss / 2**20 for name, p in processes.items()}
    facts |= {f"{name}_cpu_s": sum(process.cpu_times()[:2]) for name, process in processes.items()}
    facts["redis_cpu_s"] = sum(psutil.Process(stack.redis.pid).cpu_times()[:2])
    return {"started_s": started_s, **facts}


def _print_table(figures: Sequence[Figures], facts: dict[str, float]) -> None:
    columns = ("concurrency", "tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99 (ms)")
    print("  ".join(f"{name:>12}" for name in columns))
    for figure in figures:
        concurrency, _, *numbers = figure.as_dict().values()
        print("  ".join([f"{concurrency:>12}", *(f"{number:>12.1f}" for number in numbers)]))
    for name, value in facts.items():
        print(f"{name:>20}  {value:.1f}")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
