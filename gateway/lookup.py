"""Finding a request by its id, for the tenant it belongs to and nobody else."""

from common.domain import RequestId
from common.errors import NotFound
from common.streams.following import Record, read_record
from common.streams.node import Node

_BOUND_S = 2.0


class Lookup:
    """Reads records on behalf of tenants."""

    def __init__(self, node: Node) -> None:
        """Reads from ``node``."""
        self._node = node

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


def request_not_found(text: str) -> NotFound:
    """What a caller is told who asks for a request that is not there for him."""
    return NotFound(
        "there is no such request; results are kept for a while only",
        reason="REQUEST_NOT_FOUND",
        metadata={"resource_type": "request", "resource_name": text[:256]},
    )
