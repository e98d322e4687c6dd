"""Makes the client for an address: one node, the master that Sentinel names, or a cluster.

The three are used alike. What differs is who serves a key (``node_of``) and how many there are (``primaries``);
on one node and behind Sentinel both are the client itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from common.streams.addresses import Address, Host, Topology
from common.streams.cluster import ClusterClient
from common.streams.sentinel import MasterPool, Sentinels

RedisClient = (
    Any  # redis.asyncio.Redis: its stubs type every answer as a union that no caller can use
)

CONNECT_TIMEOUT_S = 2.0
"""Far above a handshake with a healthy node."""

_SENTINEL_TIMEOUT_S = 1.0
"""A Sentinel answers from memory. All are asked at once, so one that hangs delays nobody."""

_MAX_CONNECTIONS = 2**31
"""No bound of the pool's own: beyond one it would refuse a call instead of letting it wait."""


@dataclass(frozen=True, slots=True)
class Connections:
    """A client, and the Sentinels that it asks."""

    client: RedisClient
    sentinels: Sequence[RedisClient] = ()

    async def aclose(self) -> None:
        """Close them all."""
        await asyncio.gather(*(client.aclose() for client in (self.client, *self.sentinels)))


def connect(address: Address, socket_timeout_s: float) -> Connections:
    """A client for ``address``, whose reads take ``socket_timeout_s`` at most. It connects on first use."""
    settings = _settings(address, socket_timeout_s)
    if address.topology is Topology.CLUSTER:
        return Connections(ClusterClient(address.hosts, lambda host: _node(host, settings)))
    if address.topology is Topology.SENTINEL:
        return _sentinel_connections(address, settings)
    if address.path:
        settings |= {"unix_socket_path": address.path, "db": address.db}
        return Connections(redis.asyncio.Redis(**settings))
    return Connections(_node(address.hosts[0], settings | {"db": address.db}))


async def node_of(client: RedisClient, key: str) -> RedisClient:
    """The node that serves ``key`` now."""
    return await client.node_of(key) if isinstance(client, ClusterClient) else client


async def primaries(client: RedisClient) -> Sequence[RedisClient]:
    """Every node that holds data of its own."""
    return await client.primaries() if isinstance(client, ClusterClient) else [client]


def _sentinel_connections(address: Address, settings: Mapping[str, Any]) -> Connections:
    asking = {
        **settings,
        "username": address.sentinel_username,
        "password": address.sentinel_password,
        "socket_timeout": _SENTINEL_TIMEOUT_S,
        "socket_connect_timeout": _SENTINEL_TIMEOUT_S,
    }
    sentinels = Sentinels(address.hosts, asking)
    client = sentinels.master_for(
        address.master, connection_pool_class=MasterPool, db=address.db, **settings
    )
    return Connections(client, tuple(sentinels.sentinels))


def _node(host: Host, settings: Mapping[str, Any]) -> RedisClient:
    return redis.asyncio.Redis(host=host[0], port=host[1], **settings)


def _settings(address: Address, socket_timeout_s: float) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": socket_timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": True,
        "max_connections": _MAX_CONNECTIONS,
        # The library would tell its version: a user of Redis' ACL need not be allowed to.
        "driver_info": None,
        # Our own loop repeats calls (Node.call): a retry inside the library would hide how often.
        "retry": Retry(NoBackoff(), 0),
    }
    return settings | ({"ssl": True, **address.tls} if address.has_tls else {})
