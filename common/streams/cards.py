"""Model cards: what gateways and schedulers know of a model without having its files."""

from common import keys
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script


async def store_card(node: Node, model: str, revision: str, card: bytes) -> None:
    """Store a card and make its revision the model's current one, if the model is new."""
    await node.call(lambda client: client.set(keys.card(model, revision), card))
    await node.call(lambda client: client.hset(keys.model_index(), model, revision))


async def has_card(node: Node, model: str, revision: str, *, bound_s: float | None = None) -> bool:
    """Whether the card is stored.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    key = keys.card(model, revision)
    return bool(await node.call(lambda client: client.exists(key), bound_s=bound_s))


async def read_index(node: Node, *, bound_s: float | None = None) -> dict[str, str]:
    """Current revision of each known model.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    fields = await node.call(lambda client: client.hgetall(keys.model_index()), bound_s=bound_s)
    return {name.decode(): revision.decode() for name, revision in fields.items()}


async def read_card(
    node: Node, model: str, revision: str, *, bound_s: float | None = None
) -> bytes | None:
    """The serialized card, if it is stored.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    return await node.call(lambda client: client.get(keys.card(model, revision)), bound_s=bound_s)


async def partition_count(node: Node, model: str, *, bound_s: float | None = None) -> int:
    """Number of partitions of a model; 1 unless set.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    value = await node.call(
        lambda client: client.hget(keys.partition_counts(), model), bound_s=bound_s
    )
    return int(value or 1)


async def raise_partition_count(
    node: Node, model: str, count: int, *, bound_s: float | None = None
) -> int:
    """Let a model have ``count`` partitions at least; answers how many it has.

    Raises:
        Unavailable: no definite answer within ``bound_s``; repeating it is harmless.
    """
    call = ScriptCall("raise_partitions", [keys.partition_counts()], [model, count])
    return int(decoded(await run_script(node, call, bound_s=bound_s))[0])
