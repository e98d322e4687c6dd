"""Rule 9: a request goes where most of its prompt is cached, unless that worker is the busier by more than this saves.

Both sides are counted in engine steps: what is cached saves ``tokens / max_batch_tokens`` of them, and a worker's
load is the share of its slots in use plus the steps of prefill ahead of it. Where a beginning is held by many, the
least loaded worker is likely to hold it too, so that a few of the others are enough to look at.
"""

from collections.abc import Mapping
from itertools import islice

from scheduler.planning.fit import Room
from scheduler.planning.prefixes import PrefixIndex
from scheduler.planning.waiting import WaitingRequest

_MAX_HOLDERS = 8


def better_room(
    request: WaitingRequest, first: Room, rooms: Mapping[str, Room], prefixes: PrefixIndex
) -> tuple[Room, int]:
    """Where ``request`` goes, which ``first``, the least loaded worker, could take; and its cached tokens there."""
    if not request.prefix:
        return first, 0
    best, best_tokens = first, _cached_tokens(request, first, prefixes)
    best_gain = _gain(first, best_tokens)
    for worker_id in islice(prefixes.holders(request.prefix), _MAX_HOLDERS):
        room = rooms.get(worker_id)
        if room is None or room is first or not room.worker.serves(request.lane_key):
            continue
        tokens = _cached_tokens(request, room, prefixes)
        gain = _gain(room, tokens)
        if gain > best_gain and room.fits(request):
            best, best_tokens, best_gain = room, tokens, gain
    return best, best_tokens


def _gain(room: Room, cached_tokens: int) -> float:
    return cached_tokens / max(1, room.worker.max_batch_tokens) - room.load


def _cached_tokens(request: WaitingRequest, room: Room, prefixes: PrefixIndex) -> int:
    held = prefixes.num_cached(room.worker.worker_id, request.prefix)
    return request.known_tokens - request.to_compute(held)
