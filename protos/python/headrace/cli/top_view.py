"""What ``headrace top`` shows: from the operators' messages to lines of text."""

from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from headrace.cli.terminal import table_lines
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen

_BAR_CHARS = 10
_MAX_TENANTS = 8
_MAX_SLOW = 8
# A worker that has work and ended no step for this long is worth a look.
_STALLED_S = 5.0


def frame(queues: Sequence[admin.Queue], workers: Sequence[admin.Worker], at: str) -> list[str]:
    """One frame: the whole in a line, then partitions, tenants and workers."""
    waiting = sum(part.num_waiting for queue in queues for part in queue.classes)
    running = sum(queue.num_running for queue in queues)
    rate = sum(queue.drain_rate for queue in queues)
    tokens = sum(queue.tokens_per_s for queue in queues)
    whole = (
        f"{at}   waiting {waiting}   running {running}   workers {len(workers)}"
        f"   leaving the queue {rate:.1f}/s   tokens {tokens:.0f}/s"
    )
    lines = [whole, ""]
    lines += table_lines(_QUEUE_HEAD, [_queue(queue) for queue in queues])
    tenants = list(_tenants(queues))
    if len(tenants) > 1:
        lines += ["", *table_lines(["TENANT", "WAITING", "RUNNING"], tenants)]
    lines += ["", *table_lines(_WORKER_HEAD, [_worker(worker) for worker in workers])]
    slow = [_slow(request) for request in _oldest(queues)]
    return [*lines, "", *table_lines(_SLOW_HEAD, slow)] if slow else lines


_CLASSES = [
    (gen.PRIORITY_CRITICAL, "CRIT"),
    (gen.PRIORITY_HIGH, "HIGH"),
    (gen.PRIORITY_NORMAL, "NORM"),
    (gen.PRIORITY_BATCH, "BATCH"),
]
_QUEUE_HEAD = [
    *("MODEL", "PART", "LEADER", *(name for _, name in _CLASSES)),
    *("OLDEST", "TOKENS", "RUNNING", "WORKERS", "PER S", "TOK/S"),
]
_SLOW_HEAD = ["OPEN LONGEST", "TENANT", "CLASS", "STATUS", "AGE", "TOKENS", "WORKER"]
_WORKER_HEAD = ["WORKER", "MODEL", "RUNNING", "KV", "", "STEP AGE", "STATE"]


def _queue(queue: admin.Queue) -> list[object]:
    by_class = {part.priority: part for part in queue.classes}
    counts = [by_class[kind].num_waiting if kind in by_class else 0 for kind, _ in _CLASSES]
    oldest_s = max((_seconds(part.oldest_age) for part in queue.classes), default=0.0)
    return [
        *(queue.model, queue.partition, queue.leader or "none", *counts),
        *(f"{oldest_s:.1f}s", sum(part.waiting_tokens for part in queue.classes)),
        *(queue.num_running, queue.num_workers, f"{queue.drain_rate:.1f}"),
        f"{queue.tokens_per_s:.0f}",
    ]


def _tenants(queues: Sequence[admin.Queue]) -> Iterator[tuple[str, int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for tenant in (one for queue in queues for one in queue.tenants):
        waiting, running = totals.get(tenant.tenant, (0, 0))
        totals[tenant.tenant] = (waiting + tenant.num_waiting, running + tenant.num_running)
    busiest = sorted(totals.items(), key=lambda item: (-sum(item[1]), item[0]))
    for name, (waiting, running) in busiest[:_MAX_TENANTS]:
        yield name, waiting, running
    if rest := busiest[_MAX_TENANTS:]:
        yield (
            f"{len(rest)} others",
            sum(waiting for _, (waiting, _) in rest),
            sum(running for _, (_, running) in rest),
        )


def _worker(worker: admin.Worker) -> list[object]:
    share = worker.kv_blocks_used / worker.kv_blocks if worker.kv_blocks else 0.0
    filled = round(share * _BAR_CHARS)
    age_s = _seconds(worker.last_step_age)
    state = "draining" if worker.draining else "stalled" if age_s > _STALLED_S else "serving"
    return [
        *(worker.worker_id, worker.model, f"{worker.num_running}/{worker.max_seqs}"),
        *("#" * filled + "." * (_BAR_CHARS - filled), f"{share:.0%}", f"{age_s:.1f}s", state),
    ]


def _oldest(queues: Sequence[admin.Queue]) -> list[admin.OpenRequest]:
    found = [request for queue in queues for request in queue.oldest]
    return sorted(found, key=lambda request: -_seconds(request.age))[:_MAX_SLOW]


def _slow(request: admin.OpenRequest) -> list[object]:
    return [
        *(request.request_id, request.tenant),
        gen.Priority.Name(request.priority).removeprefix("PRIORITY_").lower(),
        gen.RequestStatus.Name(request.status).removeprefix("REQUEST_STATUS_").lower(),
        *(f"{_seconds(request.age):.1f}s", request.tokens, request.worker_id or "-"),
    ]


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
