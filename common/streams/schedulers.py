"""Which schedulers live: a sign of life from each, by which they spread the partitions among themselves.

Nothing hangs on it but who leads how much: leases alone say who leads.
"""

from common import keys
from common.streams.connections import RedisClient
from common.streams.node import Node


async def sign_of_life(node: Node, scheduler_id: str, *, bound_s: float) -> int:
    """Tell that this scheduler lives; answers how many do, this one included.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    key = keys.schedulers()
    now_ms = await node.time_ms(key, bound_s=bound_s)

    async def operation(client: RedisClient) -> int:
        pipeline = client.pipeline(transaction=False)
        pipeline.zadd(key, {scheduler_id: now_ms})
        pipeline.zremrangebyscore(key, "-inf", now_ms - keys.SCHEDULER_SIGN_MS)
        pipeline.pexpire(key, keys.SCHEDULER_SIGN_MS)
        pipeline.zcard(key)
        return int((await pipeline.execute())[-1])

    return await node.call(operation, bound_s=bound_s)


async def say_goodbye(node: Node, scheduler_id: str, *, bound_s: float) -> None:
    """This scheduler stops: the others need not wait for its silence.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    await node.call(lambda client: client.zrem(keys.schedulers(), scheduler_id), bound_s=bound_s)
