"""Silence of a lease's holder: the rule that keeps a stalled Redis from making everyone think that everyone else has died.

A lease counts as gone once it is absent and its holder has been silent for the lease's whole length of *healthy* time:
time between two looks that were answered, with no failed look and no long pause between them. A stall adds nothing, so
nobody takes over from a holder who merely could not renew; and it takes nothing away, so that a holder who died while
Redis is hurt every few seconds is replaced all the same.

    renewals  ●    ● the last
    looks       there   there    (failed)  absent   absent           absent
    time  ────────┼────────┼────────x──────────┼────────┼──── … ────────┼────▶
                     |────|  counts not   |─ counts ─|   a lease: what went before is forgotten

Silence begins with the last renewal, which Redis tells with a lease that is there. Where it is not told, silence begins
with the first look that finds the lease absent.

A hole shorter than a lease hides nothing: who renews or takes a lease keeps it for its length, so what was done in the
hole is still seen behind it, and begins the count anew. Longer holes begin it anew, too.
"""

# Answers take a few milliseconds, and Redis' clock is not ours.
_SHORTEST_PAUSE_S = 0.02


class Absence:
    """For how long a holder has been seen silent."""

    def __init__(self, lease_s: float, max_gap_s: float) -> None:
        """``max_gap_s``: time between two answers further apart than this was not observed."""
        self._lease_s = lease_s
        self._max_gap_s = max_gap_s
        self._silent_s = 0.0
        self._last_s: tuple[float, float] | None = None
        self._is_watching = False

    @property
    def remaining_s(self) -> float:
        """How much longer the holder has to be seen silent."""
        return max(0.0, self._lease_s - self._silent_s)

    def next_look_s(self, interval_s: float) -> float:
        """How long to wait before the next look: an interval, or less where the lease would count as gone before."""
        return max(_SHORTEST_PAUSE_S, min(interval_s, self.remaining_s or interval_s))

    def saw(
        self, *, present: bool, asked_s: float, now_s: float, renewed_ago_s: float | None = None
    ) -> bool:
        """Note a look that was asked for and has been answered now; True once the lease counts as gone.

        ``renewed_ago_s``: how long before the answer a lease that is there was renewed, as far as that is told.
        """
        last_asked_s, last_s = self._last_s or (asked_s, now_s)
        was_watching, self._is_watching = self._is_watching, True
        self._last_s = asked_s, now_s
        # From the asking on: the former look may have been long on its way back.
        since_look_s = now_s - last_asked_s
        most_s = (renewed_ago_s or 0.0) if present else self._lease_s
        if since_look_s >= min(most_s, self._lease_s):
            self._silent_s = 0.0  # renewed since that look, or perhaps in a long hole
        if was_watching and now_s - last_s <= self._max_gap_s:
            self._silent_s += now_s - last_s
        if present:
            self._silent_s = min(self._silent_s, most_s)
            self._is_watching = renewed_ago_s is not None
        return not present and self._silent_s >= self._lease_s

    def interrupt(self) -> None:
        """A look failed: what lies between the answered ones around it was not observed."""
        self._is_watching = False
