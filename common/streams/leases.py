"""Leases: who leads a partition, and which gateways live. When one that cannot be seen counts as gone: ``common.absence``."""

from dataclasses import dataclass

from common import keys
from common.domain import Partition
from common.streams import inbox
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """Value of a leader's lease: the scheduler's incarnation and the address that workers dial."""

    scheduler_id: str
    address: str

    def encode(self) -> str:
        """As stored."""
        return f"{self.scheduler_id}|{self.address}"

    @classmethod
    def decode(cls, value: str) -> "LeaderLease":
        """From what is stored."""
        scheduler_id, _, address = value.partition("|")
        return cls(scheduler_id, address)


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """Whose lease stands, and how long ago it was renewed."""

    leader: LeaderLease
    renewed_ago_s: float


async def hold_leader_lease(
    node: Node, partition: Partition, lease: LeaderLease, *, bound_s: float
) -> LeaderLease:
    """Renew the lease, or take it if nobody has it. Answers who holds it now.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    answer = decoded(
        await run_script(
            node,
            ScriptCall(
                "renew_lease", [keys.lead(partition)], [lease.encode(), keys.LEADER_LEASE_MS]
            ),
            bound_s=bound_s,
        )
    )
    return lease if answer[0] == "held" else LeaderLease.decode(answer[1])


async def read_leader(
    node: Node, partition: Partition, *, bound_s: float | None = None
) -> LeaderLease | None:
    """Who leads, if anybody."""
    value = await node.call(lambda client: client.get(keys.lead(partition)), bound_s=bound_s)
    return LeaderLease.decode(value.decode()) if value else None


async def look_at_leader(node: Node, partition: Partition, *, bound_s: float) -> LeaderSeen | None:
    """Who leads, if anybody, at a moment at which a lease could have been renewed: for ``common.absence``.

    Raises:
        Unavailable: no definite answer within ``bound_s``, or Redis takes no writes.
    """
    seen = await _look(node, keys.lead(partition), bound_s)
    if seen is None or not seen[0]:
        return None
    value, left_ms = seen
    return LeaderSeen(LeaderLease.decode(value), _renewed_ago_s(keys.LEADER_LEASE_MS, left_ms))


async def is_lease_free(node: Node, partition: Partition, *, bound_s: float) -> bool:
    """Whether nobody can still act under the lease: the last holder gave it back, or there was none ever.

    There was none ever when no inbox has a consumer group: the first thing a leader does is to create them.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    value = await node.call(lambda client: client.get(keys.lead(partition)), bound_s=bound_s)
    if value is not None:
        return value == b""
    return not await inbox.has_groups(node, partition, bound_s=bound_s)


async def release_leader_lease(
    node: Node, partition: Partition, lease: LeaderLease, *, bound_s: float
) -> None:
    """Give the lease back at a clean stop."""
    await run_script(
        node,
        ScriptCall(
            "release_lease",
            [keys.lead(partition)],
            [lease.encode(), keys.RELEASED_LEASE_TTL_MS],
        ),
        bound_s=bound_s,
    )


async def renew_gateway(node: Node, gateway_id: str, *, bound_s: float) -> None:
    """Renew a gateway's lease."""
    key = keys.gateway_alive(gateway_id)
    await run_script(
        node, ScriptCall("renew_lease", [key], ["1", keys.GATEWAY_LEASE_MS]), bound_s=bound_s
    )


async def release_gateway(node: Node, gateway_id: str, *, bound_s: float) -> None:
    """End a gateway's lease at a clean stop."""
    await node.call(lambda client: client.delete(keys.gateway_alive(gateway_id)), bound_s=bound_s)


async def look_at_gateway(node: Node, gateway_id: str, *, bound_s: float) -> float | None:
    """How long ago the gateway's lease was renewed, if it stands, at a moment at which it could have been renewed.

    For ``common.absence``.

    Raises:
        Unavailable: no definite answer within ``bound_s``, or Redis takes no writes.
    """
    seen = await _look(node, keys.gateway_alive(gateway_id), bound_s)
    return None if seen is None else _renewed_ago_s(keys.GATEWAY_LEASE_MS, seen[1])


async def _look(node: Node, key: str, bound_s: float) -> tuple[str, int] | None:
    """A lease's value and the milliseconds that it has left, if it is there."""
    answer = decoded(await run_script(node, ScriptCall("look_lease", [key], []), bound_s=bound_s))
    return (answer[0], int(answer[1])) if answer else None


def _renewed_ago_s(lease_ms: int, left_ms: int) -> float:
    return max(0, lease_ms - left_ms) / 1000
