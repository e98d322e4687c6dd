"""``python -m tests.bench.simulate``: the planner's rules against first come first served, over a trace.

Replays a trace (``--trace FILE``, CSV as ``--write-trace`` writes it, or one made by ``--shape``) through the real
planner and workers that are arithmetic, once for each policy, and prints what each class and tenant got.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.simulate.measured import DEFAULT, measure_model
from tests.bench.simulate.policies import POLICIES
from tests.bench.simulate.report import Run, length_table, plot, table, tenant_table
from tests.bench.simulate.service import ServiceTimes
from tests.bench.simulate.shapes import SHAPES, make_trace
from tests.bench.simulate.trace import Arrival, read_trace, write_trace
from tests.bench.simulate.world import World


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    options = _parser().parse_args(arguments)
    if options.measure:
        measure_model().write(options.measure)
        print(options.measure.read_text())
        return
    service = ServiceTimes.read(options.service) if options.service else DEFAULT
    arrivals = _arrivals(options, service)
    if options.write_trace:
        write_trace(options.write_trace, arrivals)
    last_s = arrivals[-1].at_s
    print(f"{len(arrivals)} requests in {last_s:.0f} s on {options.workers} workers\n")
    runs = [
        run_policy(
            name,
            arrivals,
            service,
            options.workers,
            options.max_waiting,
            tick_s=options.tick_ms / 1000,
        )
        for name in options.policies
    ]
    print(table(runs), tenant_table(runs), length_table(runs), sep="\n\n")
    for run in runs:
        print(
            f"\n{run.policy}: {run.num_plans} plans, simulated in {run.took_s:.0f} s of CPU time",
            end="",
        )
    print(f"\npeak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    if options.plot:
        plot(runs, options.plot)


def run_policy(
    name: str,
    arrivals: Sequence[Arrival],
    service: ServiceTimes,
    num_workers: int,
    max_waiting: int,
    *,
    tick_s: float = 0.02,
) -> Run:
    """One policy's run."""
    world = World(service, num_workers, POLICIES[name], tick_s=tick_s, max_waiting=max_waiting)
    began_s = time.process_time()
    outcomes = world.run(arrivals)
    return Run.of(name, world, outcomes, time.process_time() - began_s)


def rate_of(sample: Sequence[Arrival], service: ServiceTimes, workers: int, load: float) -> float:
    """Requests per second that are ``load`` times what full workers get through."""
    mean_s = sum(service.cost_s(one.prompt_tokens, one.output_tokens) for one in sample)
    return load * workers * len(sample) / mean_s


def _arrivals(options: argparse.Namespace, service: ServiceTimes) -> Sequence[Arrival]:
    if options.trace:
        return read_trace(options.trace)
    return make_trace(
        options.shape,
        options.requests,
        lambda sample: rate_of(sample, service, options.workers, options.load),
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulate", description=__doc__)
    parser.add_argument("--trace", type=Path, help="a trace to replay")
    parser.add_argument("--shape", choices=[*SHAPES], default="burst", help="or one to make")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--load", type=float, default=1.2, help="of what the workers get through")
    parser.add_argument("--max-waiting", type=int, default=1000, help="bound of each class")
    parser.add_argument("--tick-ms", type=float, default=20, help="least time between plans")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--policies", nargs="+", choices=[*POLICIES], default=["fcfs", "priority", "headrace"]
    )
    parser.add_argument("--service", type=Path, help="service times as --measure writes them")
    parser.add_argument("--measure", type=Path, help="measure the default model, and end")
    parser.add_argument("--write-trace", type=Path)
    parser.add_argument("--plot", type=Path, help="a PNG; needs matplotlib")
    return parser


if __name__ == "__main__":
    main()
