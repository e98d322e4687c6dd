"""The master that Sentinel names, also when it changes while the former one lives.

After a planned fail-over, or when only the Sentinels lost sight of a master, the former master goes on taking
writes for ten seconds before it is made a replica and forgets them. Whoever stays connected to it loses what it is
told. So every second the Sentinels are asked anew, and a connection to anybody else is not used any more.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from common.streams.addresses import Host
from common.streams.first_answer import first_answer
from common.streams.transient import SUSPECTS

_LOOK_EVERY_S = 1.0
"""Bounds what a fail-over to a living replica can lose; a look costs one call a second about a millisecond."""

_LOOK_FOR_S = 0.25
"""Looking must not hold up calls to a master that works: Sentinels that hang are asked again next time."""


class Sentinels(Sentinel):
    """Asks all Sentinels at once: the machine that took the master along may have held the first of them."""

    def __init__(self, hosts: Sequence[Host], settings: dict[str, Any]) -> None:
        """``settings`` are those of connections to Sentinels."""
        super().__init__(hosts, sentinel_kwargs=settings)  # type: ignore[no-untyped-call]
        self._last_failure = ""

    async def discover_master(self, service_name: str) -> Host:
        """The master's address, from the first Sentinel that knows a healthy one."""
        found = await first_answer(self._ask(one, service_name) for one in self.sentinels)
        if found is None:
            raise MasterNotFoundError(
                f"no Sentinel knows a healthy master '{service_name}'{self._last_failure}"
            )
        return found

    async def _ask(self, sentinel: Any, service_name: str) -> Host | None:
        try:
            state = (await sentinel.sentinel_masters()).get(service_name)
        except SUSPECTS as error:
            self._last_failure = f"; one said: {error}"
            return None
        if state is None or not self.check_master_state(state, service_name):
            return None
        return state["ip"], state["port"]


class MasterPool(SentinelConnectionPool):
    """Connections to the master of the moment."""

    _looked_at_s = float("-inf")

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection to whom the Sentinels named last."""
        await self._look_again()
        connection = await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        try:
            if (connection.host, connection.port) != self.master_address:
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def _look_again(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        try:
            async with asyncio.timeout(_LOOK_FOR_S):
                await self.get_master_address()  # type: ignore[no-untyped-call]
        except (MasterNotFoundError, TimeoutError):
            return  # nobody knows better: the connections there are say whether the master serves
