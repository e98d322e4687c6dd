"""What happens now: who misses the deadline, what joins which worker, who makes room. See docs/scheduling.md.

A plan changes nothing but counters: whoever carries it out removes what it carries out from the queue.
"""

import heapq
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from common.domain import Priority
from scheduler.planning.fit import Room, WorkerView
from scheduler.planning.lanes import Lane
from scheduler.planning.open_order import OpenOrder, lanes_without_worker
from scheduler.planning.picks import Batch, Pick, Picks
from scheduler.planning.placement import better_room
from scheduler.planning.preempt import Preemption, plan_preemptions
from scheduler.planning.quarantine import pick_alone
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import Entry, LaneKey
from scheduler.planning.window import WaitUntil

__all__ = ["Assignment", "Pick", "Plan", "Preemption", "WorkerView", "plan"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch: what joins one worker at one moment, in order, and why."""

    worker_id: str
    picks: tuple[Pick, ...]
    reason: str

    @property
    def request_ids(self) -> tuple[str, ...]:
        """What joins."""
        return tuple(pick.request_id for pick in self.picks)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. ``expired`` (and why), ``refused`` and ``given_up`` are named again until they leave the queue.

    ``refused`` did not want to be held and no worker serves them; ``given_up`` waited for long for workers that are gone.
    ``look_again_s`` is when time alone changes the plan; None: only events will.
    """

    assignments: tuple[Assignment, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    expired: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    look_again_s: float | None = None


def plan(queue: WaitingQueue, workers: Sequence[WorkerView], now_s: float) -> Plan:
    """Plan for this moment. The same queue, workers and time give the same plan."""
    expired = queue.expire(now_s)
    serving = [worker for worker in workers if not worker.draining]
    unserved = list(lanes_without_worker(queue, serving))
    refused = _refused(unserved, expired)
    given_up = _given_up(queue, unserved, {*expired, *refused}, now_s, has_workers=bool(serving))
    made = _Making(queue, serving, frozenset((*expired, *refused, *given_up)), now_s)
    made.assign()
    picked = {pick.request_id for batch in made.batches.values() for pick in batch.picks}
    expired = {**expired, **queue.expire_waiting(picked, now_s, has_workers=bool(serving))}
    expired |= _unserved_reasons(queue, unserved, expired, has_workers=bool(serving))
    made.preempt(expired)
    num_left = len(queue) - len(picked) - len(expired) - len(refused) - len(given_up)
    queue.pace.look(now_s, is_backlogged=num_left > 0 and bool(serving))
    times_s = (*made.times_s, queue.next_expiry_s(), queue.unserved.next_s(now_s))
    times = [at_s for at_s in times_s if at_s is not None]
    return Plan(
        tuple(
            Assignment(
                batch.worker_id, tuple(batch.picks), batch.reason(queue.settings.bucket_bounds)
            )
            for batch in made.batches.values()
        ),
        tuple(made.preemptions),
        expired,
        refused,
        given_up,
        min(times, default=None),
    )


def _unserved_reasons(
    queue: WaitingQueue,
    unserved: Sequence[tuple[LaneKey, Lane]],
    expired: Mapping[str, str],
    *,
    has_workers: bool,
) -> dict[str, str]:
    """What the matter is with expired requests that nobody serves: it is not how long their prompts take."""
    keys = {key for key, _ in unserved}
    why = "no worker serves " + (
        "what it needs: its revision or its numerics" if has_workers else "the model"
    )
    return {one: why for one in expired if queue.lane_key(one) in keys}


def _refused(
    unserved: Sequence[tuple[LaneKey, Lane]], expired: Mapping[str, str]
) -> tuple[str, ...]:
    return tuple(
        request_id
        for key, lane in unserved
        # What has started waits for an equal worker: refusing it would throw away what is generated.
        if key.fingerprint is None
        for request_id in lane.impatient
        if request_id not in expired
    )


def _given_up(
    queue: WaitingQueue,
    unserved: Sequence[tuple[LaneKey, Lane]],
    ended: Container[str],
    now_s: float,
    *,
    has_workers: bool,
) -> tuple[str, ...]:
    lanes = queue.unserved.look(unserved, now_s, has_workers=has_workers)
    return tuple(
        request_id for lane in lanes for request_id in lane.request_ids if request_id not in ended
    )


class _Making:
    """A plan while it is made. ``times_s`` are when time alone changes it."""

    def __init__(
        self, queue: WaitingQueue, serving: list[WorkerView], skip: frozenset[str], now_s: float
    ) -> None:
        """``skip`` names requests that nobody may get."""
        self.batches: dict[str, Batch] = {}
        self.preemptions: list[Preemption] = []
        self.times_s: list[float | None] = []
        self._queue = queue
        self._skip = skip
        self._now_s = now_s
        needs: dict[str, int] = {}
        self._rooms = [Room(worker, queue.settings, queue.lengths, needs) for worker in serving]
        self._order = OpenOrder(queue, skip, now_s)

    def assign(self) -> None:
        """Who joins which worker: suspects first, then the others, the least loaded worker next, pick by pick."""
        queue = self._queue
        alone = pick_alone(queue, self._rooms, self._order, self._skip, self._now_s)
        self._rooms = [room for room in self._rooms if room.worker.worker_id not in alone.closed]
        self.batches = {batch.worker_id: batch for batch in alone.batches}
        self.times_s.append(alone.look_again_s)
        picks = Picks(queue, self._order, self._rooms)
        rooms = {room.worker.worker_id: room for room in self._rooms}
        # Among equally loaded ones what holds least is next: caches fill evenly, and hold more together.
        held = queue.prefixes.num_held
        turns = [
            (room.load, held(worker_id), worker_id, room)
            for worker_id, room in rooms.items()
            if room.is_open
        ]
        heapq.heapify(turns)
        num_left = len(queue) - len(self._skip) - len(self.batches)
        while turns and num_left:
            load, num_held, worker_id, room = heapq.heappop(turns)
            if load != room.load:  # it got something that it holds the beginning of
                if room.is_open:
                    heapq.heappush(turns, (room.load, num_held, worker_id, room))
                continue
            batch = self._batch_for(room, picks)
            found = None if batch is None else picks.next_for(room, batch)
            if batch is None or found is None:
                continue
            num_left -= 1
            self._place(*found, room, rooms, batch)
            if room.is_open:
                heapq.heappush(turns, (room.load, num_held, worker_id, room))

    def _batch_for(self, room: Room, picks: Picks) -> Batch | None:
        """The batch that ``room`` has or starts; None: there is nothing for it now."""
        worker_id = room.worker.worker_id
        batch = self.batches.get(worker_id)
        if batch is not None:
            return batch
        start = picks.check_window(room, self._now_s)
        if isinstance(start, WaitUntil):
            self.times_s.append(start.until_s)
            return None
        return None if start is None else Batch(worker_id, start.reason)

    def _place(
        self, entry: Entry, why: str, room: Room, rooms: Mapping[str, Room], batch: Batch
    ) -> None:
        request = entry.request
        best, cached_tokens = better_room(request, room, rooms, self._queue.prefixes)
        if best is not room:
            worker_id = best.worker.worker_id
            batch = self.batches.get(worker_id) or Batch(worker_id, "cached prefix")
        if cached_tokens:
            why = f"{why}, {cached_tokens} tokens cached"
        self.batches[batch.worker_id] = batch
        batch.add(entry, why, cached_tokens)
        best.take(request, cached_tokens)

    def preempt(self, expired: Mapping[str, str]) -> None:
        """Who makes room for the most important of what is left."""
        lowest = min(
            (one.lowest_running for one in self._views() if one.lowest_running is not None),
            default=Priority.CRITICAL,
        )
        if lowest is Priority.CRITICAL:
            return
        left = (
            entry for entry in self._order.left(lowest) if entry.request.request_id not in expired
        )
        queue = self._queue
        found = plan_preemptions(left, self._rooms, queue.recompute, self._now_s, queue.settings)
        self.preemptions = found.chosen
        self.times_s.append(found.look_again_s)

    def _views(self) -> Iterator[WorkerView]:
        return (room.worker for room in self._rooms)
