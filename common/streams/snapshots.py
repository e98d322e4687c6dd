"""Leaders' snapshots of their partitions: feed RetryInfo, ``status`` and ``top``, and say which revision is served."""

from common import keys
from common.domain import Partition
from common.streams.node import Node


async def store_snapshot(
    node: Node, partition: Partition, snapshot: bytes, *, bound_s: float | None = None
) -> None:
    """Store the leader's snapshot.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    await node.call(
        lambda client: client.set(keys.status(partition), snapshot, px=keys.STATUS_TTL_MS),
        bound_s=bound_s,
    )


async def read_snapshot(node: Node, partition: Partition, *, bound_s: float) -> bytes | None:
    """The leader's snapshot, unless it is stale.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    return await node.call(lambda client: client.get(keys.status(partition)), bound_s=bound_s)
