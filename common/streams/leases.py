"""Leases: who leads a partition, and which gateways live.

``Absence`` is the rule that keeps a stalled Redis from making everyone think that everyone else has died: a lease
counts as gone only after it was seen absent for its full length over a connection that answered all the while.
"""

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
    await node.call(lambda client: client.set(key, "1", px=keys.GATEWAY_LEASE_MS), bound_s=bound_s)


async def release_gateway(node: Node, gateway_id: str, *, bound_s: float) -> None:
    """End a gateway's lease at a clean stop."""
    await node.call(lambda client: client.delete(keys.gateway_alive(gateway_id)), bound_s=bound_s)


async def gateway_lives(node: Node, gateway_id: str, *, bound_s: float | None = None) -> bool:
    """Whether the gateway's lease stands now."""
    key = keys.gateway_alive(gateway_id)
    return bool(await node.call(lambda client: client.exists(key), bound_s=bound_s))


class Absence:
    """How long something has been seen absent, without a hole in the observation."""

    def __init__(self, lease_s: float, max_gap_s: float) -> None:
        """``max_gap_s``: two looks further apart than this are no continuous observation."""
        self._lease_s = lease_s
        self._max_gap_s = max_gap_s
        self._absent_since_s: float | None = None
        self._last_look_s: float | None = None

    def saw(self, *, present: bool, now_s: float) -> bool:
        """Note a look that the node answered; True once the absence has lasted a full lease."""
        gap_s = 0.0 if self._last_look_s is None else now_s - self._last_look_s
        self._last_look_s = now_s
        if present or gap_s > self._max_gap_s:
            self._absent_since_s = None
        if present:
            return False
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        return now_s - self._absent_since_s >= self._lease_s

    def interrupt(self) -> None:
        """A look failed: the observation starts again."""
        self._absent_since_s = None
