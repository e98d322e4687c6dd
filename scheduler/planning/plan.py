"""What happens now: who has expired, what joins which worker, and when to look again. See docs/scheduling.md.

A plan changes nothing but counters: whoever carries it out removes what it carries out from the queue.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.planning.cursors import OpenOrder, lanes_without_worker
from scheduler.planning.fit import Room, WorkerView
from scheduler.planning.picks import Batch, Picks
from scheduler.planning.quarantine import pick_alone
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.window import WaitUntil

__all__ = ["Assignment", "Plan", "WorkerView", "plan"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch: what joins one worker at one moment, in order, and why."""

    worker_id: str
    request_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. ``expired`` and ``refused`` are named again until they are removed from the queue.

    ``refused`` did not want to be held and no worker serves them. ``look_again_s`` is when time alone changes
    the plan; None: only events will.
    """

    assignments: tuple[Assignment, ...] = ()
    expired: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    look_again_s: float | None = None


def plan(queue: WaitingQueue, workers: Sequence[WorkerView], now_s: float) -> Plan:
    """Plan for this moment. The same queue, workers and time give the same plan."""
    queue.age(now_s)
    expired = queue.expire(now_s)
    serving = [worker for worker in workers if not worker.draining]
    refused = _refused(queue, serving, frozenset(expired))
    batches, window_closes_s = _assign(queue, serving, frozenset((*expired, *refused)), now_s)
    times = [at_s for at_s in (window_closes_s, queue.next_expiry_s()) if at_s is not None]
    return Plan(
        tuple(
            Assignment(batch.worker_id, tuple(batch.request_ids), batch.reason(queue.settings))
            for batch in batches
        ),
        expired,
        refused,
        min(times, default=None),
    )


def _refused(
    queue: WaitingQueue, serving: list[WorkerView], expired: frozenset[str]
) -> tuple[str, ...]:
    return tuple(
        request_id
        for key, lane in lanes_without_worker(queue, serving)
        # What has started waits for an equal worker: refusing it would throw away what is generated.
        if key.fingerprint is None
        for request_id in lane.impatient
        if request_id not in expired
    )


def _assign(
    queue: WaitingQueue, serving: list[WorkerView], skip: frozenset[str], now_s: float
) -> tuple[list[Batch], float | None]:
    """The batches, and when the first of the windows that are open closes."""
    rooms = [Room(worker, queue.settings) for worker in serving]
    order = OpenOrder(queue, skip)
    alone = pick_alone(queue, rooms, order, skip, now_s)
    rooms = [room for room in rooms if room.worker.worker_id not in alone.closed]
    # Least loaded first, pick by pick: a batch grows only while its worker stays the least loaded one.
    turns = [(room.load, room.worker.worker_id, room) for room in rooms if room.is_open]
    heapq.heapify(turns)
    picks = Picks(order, rooms, queue.settings)
    batches: dict[str, Batch] = {batch.worker_id: batch for batch in alone.batches}
    num_left = len(queue) - len(skip) - len(batches)
    windows_s: list[float] = [] if alone.look_again_s is None else [alone.look_again_s]
    while turns and num_left:
        _, worker_id, room = heapq.heappop(turns)
        batch = batches.get(worker_id)
        if batch is None:
            start = picks.check_window(room, now_s)
            if start is None:
                continue
            if isinstance(start, WaitUntil):
                windows_s.append(start.until_s)
                continue
            batch = Batch(worker_id, start.reason)
        entry = picks.next_for(room, batch)
        if entry is None:
            continue
        batches[worker_id] = batch
        batch.add(entry)
        room.take(entry.request)
        num_left -= 1
        if room.is_open:
            heapq.heappush(turns, (room.load, worker_id, room))
    return list(batches.values()), min(windows_s, default=None)
