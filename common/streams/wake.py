"""Wake messages ("look at the record of X"), which only hurry, and drain orders, whose key is the order itself."""

from dataclasses import dataclass

from common import keys
from common.domain import Partition
from common.streams.node import BLOCK_MS, Node


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """A worker is to leave within a grace: in the life that it was ordered for, not in its next under the same id."""

    worker_id: str
    incarnation: str
    grace_ms: int


async def last_wake_id(node: Node, partition: Partition) -> str:
    """Position of the newest wake message; '0-0' when there is none."""
    page = await node.call(lambda client: client.xrevrange(keys.wake(partition), count=1))
    return page[0][0].decode() if page else "0-0"


async def read_wakes(node: Node, partition: Partition, after: str) -> tuple[str, list[str]]:
    """Position behind what was read, and the ids named; waits up to BLOCK_MS."""
    answer = await node.read(
        lambda client: client.xread({keys.wake(partition): after}, count=500, block=BLOCK_MS)
    )
    names: list[str] = []
    for _, entries in answer or []:
        for entry_id, fields in entries:
            after = entry_id.decode()
            names.append(fields.get(b"id", b"").decode())
    return after, names


async def order_drain(
    node: Node, partition: Partition, order: DrainOrder, *, bound_s: float
) -> None:
    """Order that a worker is drained; the leader finds it with the wake message or its next look."""
    key = keys.drain(partition, order.worker_id)
    value = f"{order.grace_ms} {order.incarnation}"
    await node.call(lambda client: client.set(key, value, px=keys.DRAIN_TTL_MS), bound_s=bound_s)
    await node.call(
        lambda client: client.xadd(keys.wake(partition), {"id": f"drain:{order.worker_id}"}),
        bound_s=bound_s,
    )


async def read_drain(node: Node, partition: Partition, worker_id: str) -> DrainOrder | None:
    """The standing drain order of a worker, if there is one."""
    value = await node.call(lambda client: client.get(keys.drain(partition, worker_id)))
    if value is None:
        return None
    grace_ms, _, incarnation = value.decode().partition(" ")
    return DrainOrder(worker_id, incarnation, int(grace_ms))


async def clear_drain(node: Node, partition: Partition, worker_id: str) -> None:
    """The worker has left: the order is done."""
    await node.call(lambda client: client.delete(keys.drain(partition, worker_id)))
