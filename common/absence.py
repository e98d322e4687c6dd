"""Absence of a lease: the rule that keeps a stalled Redis from making everyone think that everyone else has died.

A lease counts as gone once it was seen absent for its whole length of *healthy* time: time between two looks that were
answered, with no failed look and no long pause between them. A stall adds nothing, so nobody takes over from a holder
who merely could not renew; and it takes nothing away, so that a holder who died while Redis is hurt every few seconds
is replaced all the same.

    looks      absent   absent   (failed)   absent   absent           absent
    time  ────────┼────────┼────────x──────────┼────────┼──── … ────────┼────▶
                  |─ counts ─|    counts not    |─ counts ─|   a lease: what went before is forgotten

A hole shorter than a lease hides nothing: who takes a lease keeps it for its length, so one that was taken in the hole
is still seen behind it, and being seen present begins the count anew. Longer holes begin it anew, too.
"""


class Absence:
    """For how long something has been seen absent."""

    def __init__(self, lease_s: float, max_gap_s: float) -> None:
        """``max_gap_s``: time between two answers further apart than this was not observed."""
        self._lease_s = lease_s
        self._max_gap_s = max_gap_s
        self._absent_s = 0.0
        self._last_s: tuple[float, float] | None = None
        self._is_watching = False

    def saw(self, *, present: bool, asked_s: float, now_s: float) -> bool:
        """Note a look that was asked for and has been answered now; True once the absence lasts a full lease."""
        last_asked_s, last_s = self._last_s or (asked_s, now_s)
        was_watching, self._is_watching = self._is_watching, not present
        self._last_s = asked_s, now_s
        # From the asking on: the former look may have been long on its way back.
        if present or now_s - last_asked_s >= self._lease_s:
            self._absent_s = 0.0
        elif was_watching and now_s - last_s <= self._max_gap_s:
            self._absent_s += now_s - last_s
        return not present and self._absent_s >= self._lease_s

    def interrupt(self) -> None:
        """A look failed: what lies between the answered ones around it was not observed."""
        self._is_watching = False
