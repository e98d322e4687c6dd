"""Whether the gateway has just slept (SIGSTOP, a frozen machine): whom it misses on waking may have gone elsewhere meanwhile."""

from common.lengths import LENGTHS

TICK_S = LENGTHS.gateway_renewal_s / 2
# Clients take a gateway for gone when it has said nothing for 5 s (client/connection.py); less is a busy machine.
_SLEEP_S = 4.0
# What came while it slept is read within this, on a busy machine too.
_LATE_S = 5.0


class Wakefulness:
    """Ticks while the process runs; a tick that comes late tells of a sleep."""

    def __init__(self, now_s: float) -> None:
        """Awake."""
        self._ticked_s = now_s
        self._woke_s: float | None = None

    def tick(self, now_s: float) -> None:
        """It runs."""
        if now_s - self._ticked_s > _SLEEP_S:
            self._woke_s = now_s
        self._ticked_s = now_s

    def has_slept(self, now_s: float) -> bool:
        """Whether it sleeps no more only now, or since a moment ago."""
        is_late = now_s - self._ticked_s > _SLEEP_S
        return is_late or (self._woke_s is not None and now_s - self._woke_s < _LATE_S)
