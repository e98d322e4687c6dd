"""What the leaders' snapshots say, kept once for everybody: which revision is served, retry delays, positions, operators.

``Catalogue`` looks at all of them each second. They are a second old, so they lead to preferences and advice; what a
request may do is decided where its state is.
"""

import asyncio
from collections.abc import Sequence

from common.domain import Partition, Priority
from common.errors import Unavailable
from common.logs import Log
from common.streams.node import Node
from common.streams.snapshots import read_snapshot
from common.wire.records import UndecodableError
from common.wire.snapshot import PartitionStatus, decode_status
from gateway.model import Model

_READ_BOUND_S = 1.0
_MIN_RETRY_S, _MAX_RETRY_S = 0.1, 60.0
# A refused caller comes back when so much of the queue has gone; all at once would be refused again.
_SHARE_THAT_HAS_TO_GO = 0.1


class QueueViews:
    """The newest snapshot of each partition of each model."""

    def __init__(self, node: Node, log: Log) -> None:
        """Knows nothing before the first look."""
        self._node = node
        self._log = log
        self._views: dict[Partition, PartitionStatus] = {}
        self._looked = asyncio.Event()

    def view(self, partition: Partition) -> PartitionStatus | None:
        """The snapshot, unless there is no leader."""
        return self._views.get(partition)

    def of_model(self, model: Model) -> Sequence[PartitionStatus]:
        """The snapshots of a model's partitions that have a leader."""
        return [
            view
            for partition in partitions_of(model)
            if (view := self._views.get(partition)) is not None
        ]

    def num_workers(self, model: Model) -> int:
        """Workers that serve the model now."""
        return sum(len(view.workers) for view in self.of_model(model))

    async def look(self, partition: Partition) -> PartitionStatus | None:
        """The snapshot as it is in Redis now.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        view = await self._read(partition)
        if view is None:
            self._views.pop(partition, None)
        else:
            self._views[partition] = view
        return view

    async def refresh(self, models: Sequence[Model]) -> None:
        """Look at the partitions of some models now, if Redis can be reached."""
        try:
            for model in models:
                for partition in partitions_of(model):
                    await self.look(partition)
        except Unavailable:
            self._log.debug("snapshots not read", error=self._node.last_error)

    def next_look(self) -> asyncio.Event:
        """Set when everything was looked at again."""
        return self._looked

    def looked_at(self, models: Sequence[Model]) -> None:
        """All partitions of these, which are all models, have just been looked at."""
        known = {partition for model in models for partition in partitions_of(model)}
        for gone in self._views.keys() - known:
            del self._views[gone]
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def _read(self, partition: Partition) -> PartitionStatus | None:
        data = await read_snapshot(self._node, partition, bound_s=_READ_BOUND_S)
        try:
            return None if data is None else decode_status(data)
        except UndecodableError as error:
            self._log.error("snapshot skipped", partition=str(partition), error=str(error))
            return None


def partitions_of(model: Model) -> Sequence[Partition]:
    """All partitions of a model."""
    return [Partition(model.card.model, index) for index in range(model.num_partitions)]


def retry_after_s(view: PartitionStatus | None, priority: Priority, num_waiting: int) -> float:
    """When a refused caller of a class may come back, from how fast the queue drains."""
    if view is None or view.drain_rate <= 0:
        return 1.0
    ahead = sum(item.num_waiting for item in view.classes if item.priority > priority)
    has_to_go = max(1.0, num_waiting * _SHARE_THAT_HAS_TO_GO) + ahead
    return min(_MAX_RETRY_S, max(_MIN_RETRY_S, has_to_go / view.drain_rate))
