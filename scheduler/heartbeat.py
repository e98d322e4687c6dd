"""Asks the records, each second and whenever somebody says so, whether our requests are still ours and wanted."""

import asyncio
from collections.abc import Callable, Iterable

from common.domain import Priority, RequestId
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.streams import ownership, wake
from common.streams.node import Node
from scheduler.led_partition import LedPartition
from scheduler.messages import Beaten, DrainOrdered

INTERVAL_S = LENGTHS.heartbeat_s
# A heartbeat that takes longer says nothing about now; the next one asks again.
_TIMEOUT_S = LENGTHS.heartbeat_bound_s
_DRAIN = "drain:"

Entry = tuple[RequestId, Priority, str, int]


class Heartbeat:
    """Reads the loop's state, changes nothing, posts what the records say."""

    def __init__(
        self, node: Node, led: LedPartition, post: Callable[[Beaten | DrainOrdered], None]
    ) -> None:
        """For the requests of ``led``."""
        self._node = node
        self._led = led
        self._post = post

    async def run(self) -> None:
        """Beat for everything that is open, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self._beat(list(self._led.requests))

    async def listen(self, after: str) -> None:
        """Beat at once for whoever is named by a wake message behind ``after``, until cancelled."""
        while True:
            after, names = await wake.read_wakes(self._node, self._led.partition, after)
            drains = [name for name in names if name.startswith(_DRAIN)]
            await self._beat([name for name in dict.fromkeys(names) if name not in drains])
            for name in drains:
                await self._look_at_drain(name.removeprefix(_DRAIN))

    async def _look_at_drain(self, worker_id: str) -> None:
        order = await wake.read_drain(self._node, self._led.partition, worker_id)
        if order is not None:
            self._post(DrainOrdered(order))

    async def _beat(self, request_ids: Iterable[str]) -> None:
        entries = [entry for entry in map(self._entry, request_ids) if entry is not None]
        if not entries:
            return
        try:
            answers = await ownership.heartbeat(
                self._node, self._led.partition, self._led.owner, entries, bound_s=_TIMEOUT_S
            )
        except Unavailable:
            return
        found = {
            (str(request_id), epoch): answer
            for (request_id, _, _, epoch), answer in zip(entries, answers, strict=True)
        }
        self._post(Beaten(found))

    def _entry(self, request_id: str) -> Entry | None:
        request = self._led.requests.get(request_id)
        if request is None or request.is_settling or request.is_newcomer:
            return None
        return request.id, request.header.priority, request.entry_id, request.epoch
