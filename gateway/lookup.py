"""Finding a request by its id, for the tenant it belongs to and nobody else."""

import asyncio

from common.domain import RequestId
from common.errors import NotFound
from common.streams.following import Record, read_record
from common.streams.node import Node
from gateway.relay.recent_ends import RecentEnds

_BOUND_S = 2.0
# Nothing tells when the owner has written the record: looked for ever less often, for about a second.
_SETTLE_PAUSES_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.4)


class Lookup:
    """Reads records on behalf of tenants."""

    def __init__(self, node: Node, recent_ends: RecentEnds) -> None:
        """Reads from ``node``; ``recent_ends`` says whose terminal record is about to be written."""
        self._node = node
        self._recent_ends = recent_ends

    async def find(self, text: str, tenant: str) -> tuple[RequestId, Record]:
        """The request's id and record.

        Raises:
            NotFound: there is none, or it is somebody else's, which looks the same.
            Unavailable: Redis cannot be reached.
        """
        request_id = RequestId.parse(text)
        if request_id is None:
            raise request_not_found(text)
        record = await read_record(self._node, request_id, bound_s=_BOUND_S)
        if record is None or record.tenant != tenant:
            raise request_not_found(text)
        return request_id, record

    async def find_settled(self, text: str, tenant: str) -> tuple[RequestId, Record]:
        """As ``find``, but of a request whose end was just told here, the record that says so.

        Raises:
            NotFound: there is none, or it is somebody else's, which looks the same.
            Unavailable: Redis cannot be reached.
        """
        request_id, record = await self.find(text, tenant)
        pauses_s = iter(_SETTLE_PAUSES_S)
        while not record.terminal and text in self._recent_ends:
            pause_s = next(pauses_s, None)
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
            request_id, record = await self.find(text, tenant)
        return request_id, record


def request_not_found(text: str) -> NotFound:
    """What a caller is told who asks for a request that is not there for him."""
    return NotFound(
        "there is no such request; results are kept for a while only",
        reason="REQUEST_NOT_FOUND",
        metadata={"resource_type": "request", "resource_name": text[:256]},
    )
