"""Until when this process may act as a partition's leader; `campaign` renews it.

    asked          answered                      holds until       may be taken from
      |---------------|                              |                    |
      0                                     lease - margin            lease

The lease counts from the moment at which its renewal was *asked for*: Redis counts from a later one. So a scheduler
that was paused finds, at its first look at the clock, that it must not write any more.
"""

import asyncio

from common.domain import Clock
from common.lengths import LENGTHS

LEASE_S = LENGTHS.leader_lease_s
RENEW_INTERVAL_S = LENGTHS.leader_renewal_s
"""Six renewals fit into a lease, so that single lost answers cost nothing."""

MARGIN_S = LENGTHS.leader_margin_s
"""A write begun in time may take this long to arrive; clocks of two machines drift far less in a lease."""


class HeldLease:
    """A lease as its holder sees it."""

    def __init__(self, clock: Clock) -> None:
        """Not held."""
        self._clock = clock
        self._until_s = float("-inf")
        self._renewed = asyncio.Event()

    @property
    def remaining_s(self) -> float:
        """Seconds for which it holds without another renewal."""
        return max(0.0, self._until_s - self._clock())

    @property
    def lapsed_s(self) -> float:
        """Seconds since it stopped to hold."""
        return max(0.0, self._clock() - self._until_s)

    @property
    def holds(self) -> bool:
        """Whether a write may be begun now."""
        return self._clock() < self._until_s

    def renewed(self, asked_s: float) -> None:
        """A renewal that was asked for at ``asked_s`` succeeded."""
        self._until_s = asked_s + LEASE_S - MARGIN_S
        self._renewed.set()

    def lost(self) -> None:
        """Somebody else has it."""
        self._until_s = float("-inf")

    async def until_held(self) -> None:
        """Wait until a write may be begun; ends with the leadership, which cancels whoever waits."""
        while not self.holds:
            self._renewed.clear()
            await self._renewed.wait()
