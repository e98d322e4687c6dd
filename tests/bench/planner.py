"""``python -m tests.bench.planner``: what a plan costs per assigned request, by queue length, workers and tenants.

Each round plans, starts what was assigned and lets as many arrive. Workers are busy and have eight free slots. CPU
time, so that a busy machine matters less; budget (docs/scheduling.md): 20 µs a request at 100,000 waiting. What is
done a few times in a request's life whatever the plans are (to add it, to look at its patience and deadline) is shown
beside it.
"""

import argparse
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.domain import Priority
from scheduler.planning.fit import WorkerView
from scheduler.planning.plan import plan
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest

_ROUND_S = 0.05
_ARRIVALS_PER_S = 10_000
_SIZES = (1_000, 10_000, 100_000)
_WORKERS = (1, 100, 1_000)


@dataclass(frozen=True)
class PlanCost:
    """CPU microseconds: of planning and starting per assigned request; of adding and a first look per request."""

    plan_us: float
    start_us: float
    add_us: float
    look_us: float
    assigned: int


def measure(
    waiting: int, num_workers: int, *, rounds: int = 100, free_seqs: int = 8, tenants: int = 50
) -> PlanCost:
    """Plan ``rounds`` times over a queue that stays ``waiting`` long."""
    rng = random.Random(1)
    queue = WaitingQueue(PlanningSettings())
    backlog = [_request(number, rng, tenants) for number in range(waiting)]
    add_s = -time.process_time()
    for request in backlog:
        queue.add(request)
    add_s += time.process_time()
    workers = [_worker(number, free_seqs) for number in range(num_workers)]
    # The backlog came at once: its deadlines are looked at for the first time, which is a cost of each request.
    look_s = -time.process_time()
    plan(queue, [], waiting / _ARRIVALS_PER_S)
    look_s += time.process_time()
    gc.collect()  # what a measurement before this one left, and the backlog's coming, are no cost of its plans
    plan_s = start_s = 0.0
    assigned, next_number = 0, waiting
    for number in range(rounds):
        now_s = waiting / _ARRIVALS_PER_S + number * _ROUND_S
        plan_s -= time.process_time()
        made = plan(queue, workers, now_s)
        plan_s += time.process_time()
        picked = [pick.request_id for batch in made.assignments for pick in batch.picks]
        start_s -= time.process_time()
        for request_id in picked:
            queue.start(request_id)
        start_s += time.process_time()
        for request_id in made.expired:
            queue.remove(request_id)
        assigned += len(picked)
        for _ in range(waiting - len(queue)):
            queue.add(_request(next_number, rng, tenants))
            next_number += 1
    return PlanCost(
        plan_s / assigned * 1e6,
        start_s / assigned * 1e6,
        add_s / waiting * 1e6,
        look_s / waiting * 1e6,
        assigned,
    )


def _request(number: int, rng: random.Random, tenants: int) -> WaitingRequest:
    tokens, arrival_s = rng.randint(1, 2000), number / _ARRIVALS_PER_S
    has_deadline = rng.random() < 0.3
    return WaitingRequest(
        request_id=str(number),
        priority=rng.choice(list(Priority)),
        tenant=f"t{rng.randrange(tenants)}",
        prompt_tokens=tokens,
        max_tokens=rng.randint(1, 512),
        known_tokens=tokens,
        arrival_s=arrival_s,
        deadline_s=arrival_s + (rng.uniform(30, 900) if has_deadline else 900),
        has_deadline=has_deadline,
    )


def _worker(number: int, free_seqs: int) -> WorkerView:
    return WorkerView(
        worker_id=f"w{number}",
        free_seqs=free_seqs,
        free_blocks=4000,
        block_size=16,
        pending_prefill_tokens=0,
        max_batch_tokens=8192,
        num_running=3,
        fingerprint="f",
        draining=False,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.planner", description=__doc__)
    parser.add_argument("--plot", type=Path, help="a PNG of cost against queue length")
    parser.add_argument("--sizes", type=int, nargs="+", default=[*_SIZES])
    options = parser.parse_args(arguments)
    print(
        f"{'waiting':>8} {'workers':>8} {'tenants':>8} {'plan µs':>8} {'start µs':>9} {'add µs':>7} {'look µs':>8}"
    )
    costs: dict[tuple[int, int], list[float]] = {}
    for num_workers, tenants in [*((n, 50) for n in _WORKERS), (100, 1), (100, 5_000)]:
        for waiting in options.sizes:
            rounds = max(2, 4_000 // (8 * num_workers))
            cost = measure(waiting, num_workers, rounds=min(100, rounds), tenants=tenants)
            costs.setdefault((num_workers, tenants), []).append(cost.plan_us)
            print(
                f"{waiting:>8} {num_workers:>8} {tenants:>8} {cost.plan_us:>8.1f}"
                f" {cost.start_us:>9.1f} {cost.add_us:>7.1f} {cost.look_us:>8.1f}"
            )
    if options.plot:
        _plot(options.sizes, costs, options.plot)


def _plot(sizes: Sequence[int], costs: dict[tuple[int, int], list[float]], path: Path) -> None:
    import matplotlib as mpl  # only plots need it, and it is slow to import

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4))
    for (num_workers, tenants), plan_us in costs.items():
        axis.plot(sizes, plan_us, "o-", label=f"{num_workers} workers, {tenants} tenants")
    axis.axhline(20, linestyle="--", color="grey")
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("waiting requests")
    axis.set_ylabel("µs of planning per assigned request")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
