"""Finds and deletes what is stored about requests that have ended: on request of a tenant, and before its time."""

from collections.abc import AsyncIterator
from functools import partial

from common import keys
from common.domain import Partition, RequestId
from common.request_status import RequestStatus
from common.streams.connections import RedisClient, primaries
from common.streams.dead_letters import read_letters
from common.streams.node import Node
from common.streams.scripts import ScriptCall, run_script

_SCAN_COUNT = 1000
_LETTERS = 200


async def requests_of(node: Node, tenant: str, *, bound_s: float) -> AsyncIterator[RequestId]:
    """Every request of the tenant that has a record, in whatever order.

    Raises:
        Unavailable: no definite answer within ``bound_s`` to one of the looks.
    """

    async def nodes(client: RedisClient) -> list[RedisClient]:
        return [*await primaries(client)]

    for primary in await node.call(nodes, bound_s=bound_s):
        cursor = 0
        while True:

            async def look(
                _: RedisClient, primary: RedisClient = primary, cursor: int = cursor
            ) -> tuple[int, list[bytes], list[bytes | None]]:
                after, found = await primary.scan(
                    cursor, match=keys.EVERY_RECORD, count=_SCAN_COUNT
                )
                pipeline = primary.pipeline(transaction=False)
                for key in found:
                    pipeline.hget(key, "tenant")
                return after, found, await pipeline.execute() if found else []

            cursor, found, tenants = await node.call(look, bound_s=bound_s)
            for key, owner in zip(found, tenants, strict=True):
                request_id = RequestId.parse(key.decode().rpartition(":req:")[2])
                if request_id is not None and owner == tenant.encode():
                    yield request_id
            if not cursor:
                break


async def forget_record(
    node: Node, request_id: RequestId, *, bound_s: float
) -> RequestStatus | None:
    """Delete the record of a request that has ended. Its status before; one that is open is left alone.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    call = ScriptCall("forget", [keys.record(request_id)], [])
    (status,) = await run_script(node, call, bound_s=bound_s)
    assert isinstance(status, bytes)
    return RequestStatus(status.decode()) if status else None


async def forget_letters(
    node: Node, partition: Partition, *, tenant: str = "", request_id: str = "", bound_s: float
) -> int:
    """Delete the dead letters of a tenant, or of one request; how many there were.

    Raises:
        Unavailable: no definite answer within ``bound_s`` to one of the looks.
    """
    num_deleted, start = 0, "+"
    while letters := await read_letters(
        node, partition, start=start, count=_LETTERS, bound_s=bound_s
    ):
        start = f"({letters[-1].entry_id}"
        doomed = [
            letter.entry_id
            for letter in letters
            if (tenant and letter.tenant == tenant) or letter.request_id == request_id
        ]
        if doomed:
            await node.call(partial(_delete, partition, doomed), bound_s=bound_s)
        num_deleted += len(doomed)
    return num_deleted


async def _delete(partition: Partition, entry_ids: list[str], client: RedisClient) -> None:
    await client.xdel(keys.dead(partition), *entry_ids)
