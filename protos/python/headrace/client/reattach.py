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

# A call that has less than this left ends before anybody has read it.
_TOO_LITTLE_S = 0.01


@dataclass(frozen=True, slots=True)
class ReattachPolicy:
    """How hard to try. The defaults give a gateway about 25 seconds to come back."""

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
        self.lacked_time = False
        """Whether the last pause was refused for the deadline alone."""

    @classmethod
    def of(cls, wish: bool | ReattachPolicy) -> "Reattach":
        """From what callers say: yes, no, or exactly how."""
        if isinstance(wish, ReattachPolicy):
            return cls(wish)
        return cls(ReattachPolicy() if wish else ReattachPolicy(max_attempts=0))

    def progressed(self) -> None:
        """Something new arrived."""
        self._attempt = 0

    def next_pause_s(self, error: HeadraceError, left_s: float | None) -> float | None:
        """The pause before the next attempt; None when ``error`` is the stream's end."""
        self.lacked_time = False
        if not self._can_help(error) or self._attempt >= self._policy.max_attempts:
            return None
        self._attempt += 1
        pause = self._policy.pause_s(self._attempt, random.random())  # noqa: S311
        if left_s is not None:
            # With little time left one more try costs nothing, and may find the end.
            pause = min(pause, left_s / 2)
        pause = max(pause, error.retry_after_s or 0.0)
        if left_s is not None and (pause >= left_s or left_s < _TOO_LITTLE_S):
            self.lacked_time = True
            return None
        return pause

    @staticmethod
    def _can_help(error: HeadraceError) -> bool:
        if error.code == "UNAVAILABLE":
            return error.reason not in _ENDED
        return error.code in _TRANSPORT_CODES and not error.reason
