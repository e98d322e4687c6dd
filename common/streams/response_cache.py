"""Which ended request has the answer to a repeatable one: an id, and never the answer itself.

The answer stays where it is, in its request's record: it is forgotten, expires and is read as that is.
"""

from common import keys
from common.domain import RequestId
from common.streams.node import Node


async def find_answer(node: Node, tenant: str, digest: str, *, bound_s: float) -> RequestId | None:
    """The request that was answered last.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    place = keys.response_cache(tenant, digest)
    found = await node.call(lambda client: client.get(place), bound_s=bound_s)
    return None if found is None else RequestId.parse(found.decode())


async def note_answer(
    node: Node, tenant: str, digest: str, request_id: RequestId, *, bound_s: float | None
) -> None:
    """The request has an answer. Repeating it is harmless.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    place = keys.response_cache(tenant, digest)
    await node.call(
        lambda client: client.set(place, str(request_id), px=keys.RESULT_TTL_MS), bound_s=bound_s
    )
