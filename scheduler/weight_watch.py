"""Tenants' shares as operators set them, kept in step with Redis while a partition is led."""

import asyncio
import contextlib

from common.errors import Unavailable
from common.streams.node import Node
from common.streams.tenants import list_limits

_INTERVAL_S = 2.0
_BOUND_S = 2.0


class WeightWatch:
    """Writes into the mapping that fairness reads; both run in the loop's thread."""

    def __init__(self, node: Node, weights: dict[str, float]) -> None:
        """``weights`` begin as the settings say, which hold for whoever has no limits of his own."""
        self._node = node
        self._weights = weights
        self._settings = dict(weights)

    async def run(self) -> None:
        """Look until cancelled; while Redis is away the last known shares hold."""
        while True:
            with contextlib.suppress(Unavailable):
                await self.look()
            await asyncio.sleep(_INTERVAL_S)

    async def look(self) -> None:
        """Take over what is set now.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        found = await list_limits(self._node, bound_s=_BOUND_S)
        current = self._settings | {tenant: limits.weight for tenant, limits in found.items()}
        for tenant in self._weights.keys() - current.keys():
            del self._weights[tenant]
        self._weights.update(current)
