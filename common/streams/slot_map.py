"""Which node of a cluster serves which slot, learned from the cluster itself and corrected by its redirections."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis.exceptions

from common.streams.addresses import Host
from common.streams.first_answer import first_answer
from common.streams.transient import SUSPECTS

_MAX_ASKED = 4
"""So many nodes are asked at once for the map; with others if all of these fail (the call is repeated)."""


class SlotMap:
    """Owners of slots, and a client for each node. The map is read again whenever it is in doubt."""

    def __init__(self, seeds: Sequence[Host], make_client: Callable[[Host], Any]) -> None:
        """``seeds`` are asked as long as nothing else is known, and whenever all else fails."""
        self._seeds = tuple(seeds)
        self._make_client = make_client
        self._clients: dict[Host, Any] = {}
        self._owners: dict[int, Host] = {}
        self._hosts: set[Host] = set()
        self._is_doubted = True
        self._reading = asyncio.Lock()
        self._last_failure = ""

    def client(self, host: Host) -> Any:
        """The client of a node."""
        if host not in self._clients:
            self._clients[host] = self._make_client(host)
        return self._clients[host]

    async def owner(self, slot: int) -> Host:
        """Who serves ``slot``."""
        await self._settle()
        if slot not in self._owners:
            self.doubt()
            raise redis.exceptions.ClusterDownError(f"slot {slot} is not served")
        return self._owners[slot]

    async def owners(self) -> list[Host]:
        """Everybody who serves slots."""
        await self._settle()
        return sorted(set(self._owners.values()))

    def doubt(self) -> None:
        """A node failed: another may serve its slots by now."""
        self._is_doubted = True

    def move(self, slot: int, host: Host) -> None:
        """A node says that ``host`` serves the slot."""
        self._owners[slot] = host
        self._is_doubted = True  # slots seldom move alone

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients))

    async def _settle(self) -> None:
        async with self._reading:
            if not self._is_doubted:
                return
            known = [*self._hosts.union(self._seeds)]
            asked = random.sample(known, min(_MAX_ASKED, len(known)))
            owners = await first_answer(self._ask(host) for host in asked)
            if owners is None:
                raise redis.exceptions.ConnectionError(
                    f"no node of the cluster answers; one said: {self._last_failure}"
                )
            await self._adopt(owners)

    async def _ask(self, host: Host) -> "_Layout | None":
        try:
            rows = await self.client(host).execute_command("CLUSTER", "SLOTS")
        except SUSPECTS as error:
            self._last_failure = str(error)
            return None
        return _Layout(rows, asked=host) if rows else None

    async def _adopt(self, layout: "_Layout") -> None:
        self._is_doubted = False
        self._owners = dict(layout.owners())
        self._hosts = set(layout.hosts())
        gone = set(self._clients) - self._hosts - set(self._seeds)
        await asyncio.gather(*(self._clients.pop(host).aclose() for host in gone))


class _Layout:
    """An answer of CLUSTER SLOTS: rows of first slot, last slot, primary, replicas; a node is host, port, …"""

    def __init__(self, rows: Sequence[Any], asked: Host) -> None:
        self._rows = rows
        self._asked = asked

    def owners(self) -> Iterator[tuple[int, Host]]:
        for first, last, primary, *_ in self._rows:
            host = self._host(primary)
            yield from ((slot, host) for slot in range(int(first), int(last) + 1))

    def hosts(self) -> Iterator[Host]:
        for _, _, *nodes in self._rows:
            yield from map(self._host, nodes)

    def _host(self, node: Sequence[Any]) -> Host:
        name = node[0].decode() if isinstance(node[0], bytes) else node[0]
        # A node that does not know how others reach it leaves its name out: it is the one that was asked.
        return name if name and name != "?" else self._asked[0], int(node[1])
