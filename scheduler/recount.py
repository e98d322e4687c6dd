"""Puts the admission counters right, when a partition's leadership begins and now and then while it lasts.

They change with every status in the same script, so that a crash cannot part them; what can is a record that is lost,
with Redis' memory or by its end of life.
"""

import asyncio

from common.domain import Partition
from common.errors import Unavailable
from common.logs import Log
from common.streams.node import Node
from common.streams.recount import recount

INTERVAL_S = 60.0
_BOUND_S = 2.0


class Recount:
    """The counters of a led partition."""

    def __init__(self, node: Node, partition: Partition, log: Log) -> None:
        """For ``partition``."""
        self._node = node
        self._partition = partition
        self._log = log

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            try:
                num_wrong = await recount(self._node, self._partition, bound_s=_BOUND_S)
                if num_wrong:
                    self._log.warning("admission counters put right", counters=num_wrong)
            except Unavailable as error:
                self._log.debug("not counted", reason=error.reason)
            await asyncio.sleep(INTERVAL_S)
