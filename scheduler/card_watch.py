"""Notices that the store has lost a model card, and gets it from a worker again.

A flush takes the cards along, and without them gateways know no model. Workers send their card when they dial, so
those that are connected are asked to dial again.
"""

import asyncio

from common.errors import Unavailable
from common.streams import cards
from common.streams.node import Node
from scheduler.led_partition import LedPartition

INTERVAL_S = 2.0
_TIMEOUT_S = 1.0


class CardWatch:
    """Watches the cards of the workers that are connected."""

    def __init__(self, node: Node, led: LedPartition) -> None:
        """For the workers of ``led``."""
        self._node = node
        self._led = led

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self._look()
            except Unavailable:
                continue

    async def _look(self) -> None:
        model = self._led.partition.model
        index = await cards.read_index(self._node, bound_s=_TIMEOUT_S)
        for revision in {
            worker.session.hello.model_revision for worker in self._led.workers.values()
        }:
            if model in index and await cards.has_card(
                self._node, model, revision, bound_s=_TIMEOUT_S
            ):
                continue
            for worker in list(self._led.workers.values()):
                if worker.session.hello.model_revision == revision:
                    worker.session.close(redirect="")
