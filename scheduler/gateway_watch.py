"""Notices gateways that are gone, and lets their clients leave the requests that they followed.

Each gateway through which anybody follows an open request is watched, whose log it writes to makes no difference.
Whether a request is then cancelled is decided by the record's own scripts: after a grace, if nobody else follows.
"""

import asyncio

from common.absence import Absence
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.streams import following, leases
from common.streams.node import Node
from scheduler.led_partition import LedPartition

INTERVAL_S = LENGTHS.gateway_look_s
_TIMEOUT_S = LENGTHS.gateway_look_bound_s


class GatewayWatch:
    """Watches the gateways through which open requests are followed."""

    def __init__(self, node: Node, led: LedPartition, *, grace_s: float) -> None:
        """``grace_s`` is how long a request outlives its gateway without another follower."""
        self._node = node
        self._led = led
        self._grace_ms = round(grace_s * 1000)
        self._absences: dict[str, Absence] = {}
        self._left: dict[str, set[str]] = {}
        self.num_orphans = 0
        """Open requests all of whose gateways were gone at the last look."""

    async def run(self) -> None:
        """Watch until cancelled."""
        pause_s = INTERVAL_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = await self.look()

    async def look(self) -> float:
        """Look at every gateway once, and do what follows; how long to wait before the next look."""
        gateways = {name for one in self._led.requests.values() for name in one.gateways}
        for gone in self._absences.keys() - gateways:
            del self._absences[gone]
            self._left.pop(gone, None)
        # Beside each other: their leases may lie on nodes that are away, for which the others must not wait.
        await asyncio.gather(*map(self._look_at, sorted(gateways)))
        gone_now = self._left.keys()
        self.num_orphans = sum(
            bool(one.gateways) and one.gateways <= gone_now for one in self._led.requests.values()
        )
        looks = [absence.next_look_s(INTERVAL_S) for absence in self._absences.values()]
        return min(looks, default=INTERVAL_S)

    async def _look_at(self, gateway: str) -> None:
        absence = self._absences.setdefault(
            gateway, Absence(LENGTHS.gateway_lease_s, LENGTHS.gateway_look_gap_s)
        )
        asked_s = self._led.clock()
        try:
            renewed_ago_s = await leases.look_at_gateway(self._node, gateway, bound_s=_TIMEOUT_S)
        except Unavailable:
            absence.interrupt()
            return
        lives = renewed_ago_s is not None
        if absence.saw(
            present=lives, asked_s=asked_s, now_s=self._led.clock(), renewed_ago_s=renewed_ago_s
        ):
            await self._leave(gateway, self._left.setdefault(gateway, set()))
        elif lives:
            self._left.pop(gateway, None)

    async def _leave(self, gateway: str, left: set[str]) -> None:
        left &= self._led.requests.keys()
        for request in list(self._led.requests.values()):
            if gateway not in request.gateways or request.key in left:
                continue
            try:
                await following.leave(
                    self._node,
                    request.id,
                    f"{gateway}:",
                    grace_ms=self._grace_ms,
                    bound_s=_TIMEOUT_S,
                )
            except Unavailable:
                return
            left.add(request.key)
