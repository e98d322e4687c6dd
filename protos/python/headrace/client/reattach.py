"""Whether and when a broken stream is continued; `stream` and `aio_stream` make the call.

A stream that breaks before `accepted` is repeated only under an idempotency key: whether the server took the request is
unknown, and a second one would be generated twice. Afterwards Attach only reads, so trying again is harmless.
"""

import random
from dataclasses import dataclass

from headrace.client.errors import HeadraceError

# What a connection, a proxy or a stopping process ends a call with when no server gave a reason of its own.
_TRANSPORT_CODES = frozenset({"CANCELLED", "INTERNAL", "UNKNOWN"})


# The queue itself lost the request, or it has failed for want of a worker: only a new request can help.
_ENDED = frozenset({"REQUEST_LOST", "NO_WORKER", "NO_EQUAL_WORKER", "REVISION_LEFT"})

# A gateway that lives, and cannot reach the queue: the request is safe there, and is found again when the queue is.
CUT_OFF = "QUEUE_UNAVAILABLE"

# A call that has less than this left ends before anybody has read it.
_TOO_LITTLE_S = 0.01


@dataclass(frozen=True, slots=True)
class ReattachPolicy:
    """How hard to try. The defaults give a gateway about 25 seconds to come back.

    A gateway that answers, and waits for the queue itself, is asked again as long as the request may live.
    """

    max_attempts: int = 10
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0

    def pause_s(self, attempt: int, jitter: float) -> float:
        """The pause before attempt 1, 2, …; doubles, with the upper half of it drawn by ``jitter`` (0 to 1)."""
        # Half fixed, half drawn: followers of a dead gateway must not come back all at once.
        full = min(self.longest_pause_s, self.first_pause_s * 2 ** (attempt - 1))
        return full * (0.5 + 0.5 * jitter)


class Reattach:
    """The attempts of one stream; progress starts the count anew."""

    def __init__(self, policy: ReattachPolicy) -> None:
        """A policy of no attempts switches it off."""
        self._policy = policy
        self._attempt = 0
        self._num_cut_off = 0
        self.lacked_time = False
        """Whether the last pause was refused for the deadline alone."""

    @classmethod
    def of(cls, wish: bool | ReattachPolicy) -> "Reattach":
        """From what callers say: yes, no, or exactly how."""
        if isinstance(wish, ReattachPolicy):
            return cls(wish)
        return cls(ReattachPolicy() if wish else ReattachPolicy(max_attempts=0))

    @property
    def is_off(self) -> bool:
        """Whether the stream stays where it is, whatever happens."""
        return self._policy.max_attempts == 0

    def progressed(self) -> None:
        """Something new arrived."""
        self._attempt = self._num_cut_off = 0

    def next_pause_s(self, error: HeadraceError, left_s: float | None) -> float | None:
        """The pause before the next attempt; None when ``error`` is the stream's end."""
        self.lacked_time = False
        if not self._can_help(error):
            return None
        number = self._next_number(error)
        if number is None:
            return None
        pause = self._policy.pause_s(number, random.random())  # noqa: S311
        if left_s is not None:
            # With little time left one more try costs nothing, and may find the end.
            pause = min(pause, left_s / 2)
        pause = max(pause, error.retry_after_s or 0.0)
        if left_s is not None and (pause >= left_s or left_s < _TOO_LITTLE_S):
            self.lacked_time = True
            return None
        return pause

    def _next_number(self, error: HeadraceError) -> int | None:
        """Which attempt in a row it would be, which is how long it waits; None: one too many."""
        if error.reason == CUT_OFF and not self.is_off:
            # Somebody is there, so the count of those who are not begins anew.
            self._attempt = 0
            self._num_cut_off += 1
            return self._num_cut_off
        if self._attempt >= self._policy.max_attempts:
            return None
        self._attempt += 1
        return self._attempt

    @staticmethod
    def _can_help(error: HeadraceError) -> bool:
        if error.code == "UNAVAILABLE":
            return error.reason not in _ENDED
        return error.code in _TRANSPORT_CODES and not error.reason
