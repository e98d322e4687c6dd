"""Rule 1: a request whose caller set a deadline ends as soon as it cannot make it, not only when the time is over.

    now ──── estimated wait ────▶ start ── prefill ──▶ first token        deadline
                                                           must come before ─┘

A wait is an estimate: a request is refused for it only when even twice the measured speed would be too slow. The
time to compute its prompt is not: at ``deadline - prefill`` it is over. Between, it is looked at again whenever half
of the time that is left has passed. Requests without a deadline of their own have the longest life, and wait for it;
what has started has delivered something, and waits for its deadline too.
"""

from dataclasses import dataclass

from scheduler.planning.pace import Pace
from scheduler.planning.waiting import WaitingRequest

_OPTIMISM = 2.0
# Looks at a request do not come closer than this.
_MIN_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class LookAgain:
    """It may make its deadline; it is to be looked at again then."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Hopeless:
    """It cannot make its deadline."""

    reason: str


def check_deadline(
    request: WaitingRequest, to_compute: int, num_before: int, pace: Pace, now_s: float
) -> LookAgain | Hopeless:
    """Whether a waiting request with so many tokens to compute, and so many before it, can make its deadline."""
    left_s = request.deadline_s - now_s
    if left_s <= 0:
        return Hopeless("the deadline passed in the queue")
    if not request.has_deadline or request.is_started:
        return LookAgain(request.deadline_s)
    prefill_s = pace.prefill_s(to_compute)
    wait_s = pace.wait_s(num_before) if num_before else None
    if (wait_s or 0.0) / _OPTIMISM + prefill_s >= left_s:
        wait = "" if wait_s is None else f"about {wait_s:.1f} s in the queue and "
        return Hopeless(f"{left_s:.1f} s are left for {wait}{prefill_s:.1f} s of prefill")
    half_s = max(_MIN_LOOK_S, (left_s - prefill_s) / 2)
    return LookAgain(now_s + min(half_s, left_s))
