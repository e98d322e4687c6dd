"""``python -m tests.bench.planner``: what a plan costs per assigned request, by queue length and number of workers.

Each round plans, removes what was assigned and lets as many arrive. Workers are busy and have eight free slots.
CPU time, so that a busy machine matters less; budget (docs/scheduling.md): 20 µs at 100,000 waiting.
"""

import random
import time
from dataclasses import dataclass

from common.domain import Priority
from scheduler.planning.fit import WorkerView
from scheduler.planning.plan import plan
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest

_ROUND_S = 0.05
_ARRIVALS_PER_S = 10_000


@dataclass(frozen=True)
class PlanCost:
    """CPU microseconds: of planning and removing per assigned request, of adding per request."""

    plan_us: float
    remove_us: float
    add_us: float
    assigned: int


def measure(waiting: int, num_workers: int, *, rounds: int = 100, free_seqs: int = 8) -> PlanCost:
    """Plan ``rounds`` times over a queue that stays ``waiting`` long."""
    rng = random.Random(1)
    queue = WaitingQueue(PlanningSettings())
    backlog = [_request(number, rng) for number in range(waiting)]
    add_s = -time.process_time()
    for request in backlog:
        queue.add(request)
    add_s += time.process_time()
    workers = [_worker(number, free_seqs) for number in range(num_workers)]
    plan_s = remove_s = 0.0
    assigned, next_number = 0, waiting
    for number in range(rounds):
        now_s = waiting / _ARRIVALS_PER_S + number * _ROUND_S
        plan_s -= time.process_time()
        made = plan(queue, workers, now_s)
        plan_s += time.process_time()
        picked = [request_id for batch in made.assignments for request_id in batch.request_ids]
        remove_s -= time.process_time()
        for request_id in picked:
            queue.start(request_id)
        for request_id in made.expired:
            queue.remove(request_id)
        remove_s += time.process_time()
        assigned += len(picked)
        for _ in range(waiting - len(queue)):
            queue.add(_request(next_number, rng))
            next_number += 1
    return PlanCost(
        plan_s / assigned * 1e6, remove_s / assigned * 1e6, add_s / waiting * 1e6, assigned
    )


def _request(number: int, rng: random.Random) -> WaitingRequest:
    tokens, arrival_s = rng.randint(1, 2000), number / _ARRIVALS_PER_S
    has_deadline = rng.random() < 0.3
    return WaitingRequest(
        request_id=str(number),
        priority=rng.choice(list(Priority)),
        tenant=f"t{rng.randrange(50)}",
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


def main() -> None:
    """Print one line per size."""
    print(f"{'waiting':>8} {'workers':>8} {'plan µs':>8} {'remove µs':>10} {'add µs':>8}")
    for waiting in (1_000, 10_000, 100_000):
        for num_workers in (1, 4, 100):
            rounds = 100 if num_workers < 100 else 20
            cost = measure(waiting, num_workers, rounds=rounds)
            print(
                f"{waiting:>8} {num_workers:>8} {cost.plan_us:>8.1f} {cost.remove_us:>10.1f} {cost.add_us:>8.1f}"
            )


if __name__ == "__main__":
    main()
