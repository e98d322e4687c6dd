"""Rule 9: a request goes where most of its prompt is cached, unless that worker is the busier by more than this saves.

Requests do not carry their prompts' hashes yet, so that today ``WaitingRequest.prefix`` is empty and load alone decides.

Both sides are counted in engine steps: what is cached saves ``tokens / max_batch_tokens`` of them, and a worker's
load is the share of its slots in use plus the steps of prefill ahead of it.
"""

from collections.abc import Mapping

from scheduler.planning.fit import Room
from scheduler.planning.prefixes import PrefixIndex
from scheduler.planning.waiting import WaitingRequest


def better_room(
    request: WaitingRequest, first: Room, rooms: Mapping[str, Room], prefixes: PrefixIndex
) -> tuple[Room, int]:
    """Where ``request`` goes, which ``first``, the least loaded worker, could take; and its cached tokens there."""
    if not request.prefix:
        return first, 0
    cached = prefixes.num_cached(request.prefix)
    best, best_gain = first, _gain(request, first, cached)
    for worker_id in cached:
        room = rooms.get(worker_id)
        if room is None or room is first or not room.worker.serves(request.lane_key):
            continue
        gain = _gain(request, room, cached)
        if gain > best_gain and room.fits(request):
            best, best_gain = room, gain
    return best, _cached_tokens(request, best, cached)


def _gain(request: WaitingRequest, room: Room, cached: Mapping[str, int]) -> float:
    steps = _cached_tokens(request, room, cached) / max(1, room.worker.max_batch_tokens)
    return steps - room.load


def _cached_tokens(request: WaitingRequest, room: Room, cached: Mapping[str, int]) -> int:
    """At least one token is computed: it is what the next one is drawn from."""
    tokens = cached.get(room.worker.worker_id, 0) * room.worker.block_size
    return min(tokens, request.known_tokens - 1)
