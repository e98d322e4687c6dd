"""Names that point at models, as operators set them: read by every gateway each second."""

from common import keys
from common.streams.node import Node


async def read_aliases(node: Node, *, bound_s: float | None = None) -> dict[str, bytes]:
    """Each name with what it stands for.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    fields = await node.call(lambda client: client.hgetall(keys.aliases()), bound_s=bound_s)
    return {name.decode(): value for name, value in fields.items()}


async def store_alias(node: Node, name: str, alias: bytes, *, bound_s: float) -> None:
    """Set a name, in place of what it stood for.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    await node.call(lambda client: client.hset(keys.aliases(), name, alias), bound_s=bound_s)


async def remove_alias(node: Node, name: str, *, bound_s: float) -> None:
    """Forget a name.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    await node.call(lambda client: client.hdel(keys.aliases(), name), bound_s=bound_s)
