"""Rule 6: an idle worker gets what there is at once; a busy one may wait a moment for its batch to fill.

The moment is measured from the oldest candidate's arrival: a request that has waited for longer, for a slot
say, is not kept waiting again.
"""

from dataclasses import dataclass

from scheduler.planning.fit import Room
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest


@dataclass(frozen=True, slots=True)
class DispatchNow:
    """The batch starts."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """The batch may still fill."""

    until_s: float


def check_window(
    room: Room,
    head: WaitingRequest,
    oldest_arrival_s: float,
    num_in_bucket: int,
    now_s: float,
    settings: PlanningSettings,
) -> DispatchNow | WaitUntil:
    """Whether a batch for ``room`` that begins with ``head`` starts now.

    ``oldest_arrival_s`` is that of what could go along, ``num_in_bucket`` counts what is of the head's class and bucket.
    """
    if room.is_idle:
        return DispatchNow("worker idle")
    closes_s = min(head.arrival_s, oldest_arrival_s) + settings.batch_window_s
    if closes_s <= now_s:
        return DispatchNow("window closed")
    if num_in_bucket >= room.num_fitting(head.known_tokens):
        return DispatchNow("bucket full")
    return WaitUntil(closes_s)
