"""How fast the partition serves, measured: what a wait is estimated from.

Both figures follow the last moments with a half-life of a few seconds, so that a worker that left or came shows soon. A
standstill (workers that are started again, a Redis that is away) is no pace: for a moment it is added to what is estimated,
then nobody knows.
"""

from dataclasses import dataclass

_HALF_LIFE_S = 5.0
# A rate over less says more about chance than about the workers.
_MIN_OBSERVED_S = 1.0
# Nothing has started for so many times as long as usual, and for so long at least.
_STANDSTILL_GAPS = 5.0
_STANDSTILL_S = 2.0


@dataclass(slots=True)
class _Rate:
    """Things per second, while it is observed."""

    amount: float = 0.0
    time_s: float = 0.0

    def add(self, amount: float, time_s: float) -> None:
        keep = 0.5 ** (time_s / _HALF_LIFE_S)
        self.amount = self.amount * keep + amount
        self.time_s = self.time_s * keep + time_s

    @property
    def per_s(self) -> float | None:
        return self.amount / self.time_s if self.time_s > 0 else None


class Pace:
    """Starts per second while requests wait, and prompt tokens per second of one worker while it prefills."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._starts = _Rate()
        self._prefill = _Rate()
        self._looked_s: float | None = None
        self._num_started = 0
        self._is_backlogged = False
        self._gap_s = 0.0
        self._still_s = 0.0

    def started(self, count: int = 1) -> None:
        """Requests were taken out of the queue to run."""
        self._num_started += count

    def look(self, now_s: float, *, is_backlogged: bool) -> None:
        """The moment of a plan; ``is_backlogged``: some wait beyond it. Idle time says nothing about speed."""
        if self._looked_s is not None and self._is_backlogged:
            spent_s = max(0.0, now_s - self._looked_s)
            self._starts.add(self._num_started, spent_s)
            self._still_s += spent_s
            if self._num_started:
                self._still_s = 0.0
                self._gap_s = self._starts.time_s / self._starts.amount
        self._looked_s, self._num_started, self._is_backlogged = now_s, 0, is_backlogged

    def prefilled(self, tokens: int, took_s: float) -> None:
        """A step computed so many prompt tokens."""
        self._prefill.add(tokens, took_s)

    @property
    def is_known(self) -> bool:
        """Whether starts were observed for long enough, and lately enough, to say how long a request waits."""
        if self._starts.time_s < _MIN_OBSERVED_S or not self._gap_s:
            return False
        return self._still_s <= max(_STANDSTILL_S, _STANDSTILL_GAPS * self._gap_s)

    def wait_s(self, num_before: float) -> float | None:
        """How long a request with so many before it probably waits; None: nobody knows."""
        if not self.is_known:
            return None
        return (num_before + 1) * self._gap_s + self._still_s

    def prefill_s(self, tokens: int) -> float:
        """How long a worker computes on a prompt; 0 while nobody knows."""
        per_s = self._prefill.per_s
        return tokens / per_s if per_s else 0.0
