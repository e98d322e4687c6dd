"""Who runs alone: a request under which workers died gets a worker that runs nothing else, and nothing joins it.

    serving ──kept──▶ draining ──idle──▶ alone ──over──▶ resting
              (nothing joins from here to the end)       (for as long as the others had to do without it)

An idle worker for which nothing else waits is taken at once. Under load one worker at a time is kept: it gets nothing
more until it is idle, so a suspect's wait is bounded by what runs there already. Behind each such run the others come
first for as long as the run took the worker from them: suspects cost at most half of one worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from scheduler.planning.fit import Room
from scheduler.planning.open_order import OpenOrder
from scheduler.planning.picks import Batch
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import Entry

_ALONE = "quarantine, alone"


@dataclass(slots=True)
class AlonePicks:
    """What a plan does with suspects. ``closed`` are workers that nothing else may join."""

    batches: list[Batch] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    look_again_s: float | None = None


def pick_alone(
    queue: WaitingQueue,
    rooms: Sequence[Room],
    order: OpenOrder,
    skip: frozenset[str],
    now_s: float,
) -> AlonePicks:
    """Place the suspects that wait; ``order`` is what else waits, ``skip`` names requests that nobody may get."""
    queue.kept.look((room.worker for room in rooms), now_s)
    picks = AlonePicks(closed={room.worker.worker_id for room in rooms if room.worker.runs_alone})
    suspects = (entry for entry in queue.suspects() if entry.request.request_id not in skip)
    # Beyond these there is no worker left for another one.
    considered = list(islice(suspects, len(rooms) + queue.settings.look_ahead))
    has_kept = False
    for entry in considered:
        open_rooms = [room for room in rooms if room.worker.worker_id not in picks.closed]
        room = _spare(entry, open_rooms, order)
        if room is None and not has_kept:
            room = _kept(queue, entry, open_rooms, now_s)
            has_kept = room is not None
        if room is None:
            continue
        worker = room.worker
        picks.closed.add(worker.worker_id)
        if room.is_idle and room.fits(entry.request):
            queue.kept.begin(worker)
            batch = Batch(worker.worker_id, _ALONE)
            batch.add(entry, _ALONE)
            picks.batches.append(batch)
            room.take(entry.request)
    if not has_kept:
        queue.kept.release()
    if len(picks.batches) < len(considered):
        picks.look_again_s = queue.kept.next_s(now_s)
    return picks


def _spare(entry: Entry, rooms: list[Room], order: OpenOrder) -> Room | None:
    """An idle worker that nobody else waits for."""
    for room in rooms:
        if (
            room.is_idle
            and room.worker.serves(entry.request.lane_key)
            and room.fits(entry.request)
            and not order.has_any(room.worker)
        ):
            return room
    return None


def _kept(queue: WaitingQueue, entry: Entry, rooms: list[Room], now_s: float) -> Room | None:
    """The worker that is kept, or one to be kept from now on: what is nearest to being idle."""
    able = [
        room
        for room in rooms
        if room.worker.serves(entry.request.lane_key) and room.could_fit(entry.request)
    ]
    chosen = queue.kept.choose([room.worker for room in able], now_s)
    return next((room for room in able if room.worker.worker_id == chosen), None)
