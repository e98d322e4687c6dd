"""Requests and workers for the planner's tests, with unremarkable values for what a test does not care about."""

from dataclasses import dataclass, replace

from common.domain import Priority
from scheduler.planning.fit import WorkerView
from scheduler.planning.plan import Plan, plan
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest

_REQUEST = WaitingRequest(
    request_id="a",
    priority=Priority.NORMAL,
    tenant="t",
    prompt_tokens=10,
    max_tokens=16,
    known_tokens=10,
    arrival_s=0.0,
    deadline_s=900.0,
    prefix_step_tokens=16,
)
_WORKER = WorkerView(
    worker_id="w",
    free_seqs=8,
    free_blocks=1000,
    block_size=16,
    pending_prefill_tokens=0,
    max_batch_tokens=512,
    num_running=0,
    fingerprint="f",
    draining=False,
    kv_blocks=1000,
    model_revision="r",
)


@dataclass(frozen=True)
class Runs:
    """A running request."""

    key: str
    priority: Priority = Priority.NORMAL
    since_s: float = 0.0
    known_tokens: int = 100
    has_sent: bool = True
    num_preempted: int = 0
    is_leaving: bool = False
    num_seqs: int = 1


def make_request(request_id: str, **changes) -> WaitingRequest:
    """A short NORMAL request that arrived at 0; ``tokens`` sets prompt and known tokens together."""
    tokens = changes.pop("tokens", None)
    if tokens is not None:
        changes |= {"prompt_tokens": tokens, "known_tokens": tokens}
    return replace(_REQUEST, request_id=request_id, **changes)


def make_worker(worker_id: str = "w", **changes) -> WorkerView:
    """An idle worker with room."""
    return replace(_WORKER, worker_id=worker_id, **changes)


def make_queue(*requests: WaitingRequest, **settings) -> WaitingQueue:
    """A queue of these, with every rule on: a window of 10 ms, too."""
    queue = WaitingQueue(PlanningSettings(**({"batch_window_ms": 10.0} | settings)))
    for request in requests:
        queue.add(request)
    return queue


def carry_out(queue: WaitingQueue, *workers: WorkerView, now_s: float = 1.0) -> list[str]:
    """Plan and remove what was assigned; the request ids in the order of their batches."""
    made = plan(queue, workers, now_s)
    picked = assigned(made)
    for request_id in picked:
        assert queue.start(request_id) is not None
    return picked


def assigned(made: Plan) -> list[str]:
    """Everything a plan assigns."""
    return [request_id for batch in made.assignments for request_id in batch.request_ids]
