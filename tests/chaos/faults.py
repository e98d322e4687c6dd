"""The faults themselves: each hurts one part of the cluster, holds, and heals it again before it returns."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import redis

from common.stop_signals import EXIT_FORCED
from headrace.client import HeadraceError
from tests.chaos.checks import is_refusal
from tests.chaos.cluster import Cluster, Member
from tests.chaos.journal import Journal
from tests.chaos.schedule import LOSES_WORKERS, Fault, FaultKind
from tests.support.tcp_proxy import TcpProxy

# Commands whose answers get lost: everything that changes a state is a script, the rest are reads.
_LOST = (b"EVALSHA", b"EVALSHA", b"EVALSHA", b"XREAD", b"HGET", b"XRANGE")
_MEETS_GATEWAYS = frozenset(
    {
        FaultKind.KILL_GATEWAY,
        FaultKind.PAUSE_GATEWAY,
        FaultKind.BLACKHOLE_GATEWAY_REDIS,
        FaultKind.CUT_GATEWAY_REDIS,
        FaultKind.STRAND_GATEWAY,
        FaultKind.ROLL_GATEWAYS,
    }
)
_STOP_WITHIN_S = 120.0
_DRAINED_WITHIN_S = 180.0


class Impossible(Exception):
    """There was nobody whom the fault could meet."""


class Faults:
    """Does planned faults to a cluster."""

    def __init__(self, cluster: Cluster, journal: Journal) -> None:
        self._cluster = cluster
        self._journal = journal
        # One at a time: two gateways away for longer than a request outlives them may rightly end it.
        self._gateway_turn = asyncio.Lock()

    async def do(self, fault: Fault) -> None:
        """Hurt, hold, heal.

        Raises:
            Impossible: nobody was there to be hurt.
        """
        if fault.kind in _MEETS_GATEWAYS:
            async with self._gateway_turn:
                await self._do(fault)
        else:
            await self._do(fault)

    async def _do(self, fault: Fault) -> None:
        verb, _, whom = fault.kind.partition("-")
        if whom == "redis" or fault.kind is FaultKind.CLIENT_KILL:
            await self._hurt_redis(fault)
        elif verb == "kill":
            await self._kill(fault, await self._among(whom))
        elif verb == "pause":
            await self._pause(fault, await self._among(whom))
        elif verb == "roll":
            await self._roll(fault, await self._among(whom))
        elif verb == "drain":
            await self._drain(fault)
        else:
            await self._hurt_network(fault)

    async def _among(self, whom: str) -> list[Member]:
        """The members that a kind names."""
        if whom == "leader":
            return await self._leaders()
        cluster = self._cluster
        kinds = {
            "worker": cluster.workers,
            "scheduler": cluster.schedulers,
            "gateway": cluster.gateways,
        }
        return kinds[whom.removesuffix("s")]

    async def _leaders(self) -> list[Member]:
        try:
            return [*(await asyncio.to_thread(self._cluster.leaders)).values()]
        except redis.RedisError as error:
            raise Impossible("Redis is away, nobody knows the leader") from error

    @contextlib.asynccontextmanager
    async def _met(self, fault: Fault, among: Sequence[Member]) -> AsyncIterator[Member]:
        """Whom the fault meets: one that no other fault is acting on."""
        free = [m for m in among if not m.busy.locked() and m.is_running]
        if not free:
            raise Impossible("all are busy")
        member = free[int(fault.pick * len(free))]
        async with member.busy:
            self._tell(fault, member.name)
            yield member

    def _tell(self, fault: Fault, whom: str) -> None:
        self._journal.fault(f"#{fault.number} {fault.kind} {whom} for {fault.hold_s:g} s")
        if fault.kind in LOSES_WORKERS:
            self._journal.expose()

    async def _kill(self, fault: Fault, among: Sequence[Member]) -> None:
        async with self._met(fault, among) as member:
            member.process.kill()
            await asyncio.sleep(fault.hold_s)
            await member.restart()

    async def _pause(self, fault: Fault, among: Sequence[Member]) -> None:
        async with self._met(fault, among) as member:
            member.process.pause()
            try:
                await asyncio.sleep(fault.hold_s)
            finally:
                member.process.resume()

    async def _roll(self, fault: Fault, among: Sequence[Member]) -> None:
        """SIGTERM and start again, one after the other, as a rolling update does."""
        self._tell(fault, "one after the other")
        for member in list(among):
            async with member.busy:
                if not member.is_running:
                    continue
                status = await asyncio.to_thread(member.process.stop, _STOP_WITHIN_S)
                if status == EXIT_FORCED:
                    # Redis or a client kept it for longer than its grace; its requests go on all the same.
                    self._journal.counts["stops cut short"] += 1
                elif status != 0:
                    self._journal.fail(f"{member.name} stopped with status {status}")
                await member.restart()

    async def _hurt_redis(self, fault: Fault) -> None:
        async with self._cluster.redis_busy:
            self._tell(fault, "redis")
            match fault.kind:
                case FaultKind.CLIENT_KILL:
                    await self._on_redis("CLIENT", "KILL", "TYPE", "normal")
                case FaultKind.PAUSE_REDIS:
                    await self._pause_redis(fault.hold_s)
                case FaultKind.FILL_REDIS:
                    await self._on_redis("CONFIG", "SET", "maxmemory", "1mb")
                    await asyncio.sleep(fault.hold_s)
                    await self._on_redis("CONFIG", "SET", "maxmemory", "0")
                case _:
                    await asyncio.to_thread(self._cluster.redis.kill)
                    await asyncio.sleep(fault.hold_s)
                    await asyncio.to_thread(self._cluster.redis.restart)

    async def _on_redis(self, *words: str) -> None:
        await asyncio.to_thread(self._cluster.client.execute_command, *words)

    async def _pause_redis(self, hold_s: float) -> None:
        self._cluster.redis.pause()
        try:
            await asyncio.sleep(hold_s)
        finally:
            self._cluster.redis.resume()

    async def _hurt_network(self, fault: Fault) -> None:
        kind, cluster = fault.kind, self._cluster
        if kind in (FaultKind.BLACKHOLE_WORKERS, FaultKind.CUT_WORKERS):
            await self._hurt_proxy(fault, cluster.schedulers, lambda member: member.door)
        elif kind is FaultKind.STRAND_GATEWAY:
            with self._journal.stranding():
                await self._hurt_proxy(fault, cluster.gateways, lambda member: member.link)
        elif kind in _MEETS_GATEWAYS:
            await self._hurt_proxy(fault, cluster.gateways, lambda member: member.link)
        elif kind is FaultKind.LOSE_ANSWERS:
            among = [*cluster.schedulers, *cluster.gateways]
            await self._hurt_proxy(fault, among, lambda member: member.link)
        else:
            await self._hurt_proxy(fault, cluster.schedulers, lambda member: member.link)

    async def _hurt_proxy(
        self,
        fault: Fault,
        among: Sequence[Member],
        proxy_of: Callable[[Member], TcpProxy | None],
    ) -> None:
        async with self._met(fault, among) as member:
            proxy = proxy_of(member)
            assert proxy is not None
            num_dropped = proxy.num_dropped
            if fault.kind is FaultKind.LOSE_ANSWERS:
                pattern = _LOST[int(fault.pick * 997) % len(_LOST)]
                proxy.drop_replies(pattern, 1 + int(fault.pick * 313) % 16)
            elif "blackhole" in fault.kind or fault.kind is FaultKind.STRAND_GATEWAY:
                proxy.blackhole()
            else:
                proxy.cut()
            try:
                await asyncio.sleep(fault.hold_s)
            finally:
                proxy.pass_through()
                self._journal.counts["answers lost"] += proxy.num_dropped - num_dropped

    async def _drain(self, fault: Fault) -> None:
        """By the operators' call; the worker hands over and leaves, and a new one takes its place."""
        cluster = self._cluster
        async with self._met(fault, cluster.workers) as member:
            async with cluster.operator as client:
                await self._order(client.admin.drain(member.name, grace_s=fault.hold_s))
            joined = cluster.new_worker(member.model)
            joined.process.start()
            async with joined.busy:
                cluster.workers.append(joined)
                await asyncio.to_thread(joined.process.wait_until_ready)
            status = await asyncio.to_thread(member.process.wait, _DRAINED_WITHIN_S)
            if status != 0:
                self._journal.fail(f"{member.name} was drained and ended with status {status}")
            cluster.workers.remove(member)
            cluster.left.append(member)

    async def _order(self, call: Awaitable[object]) -> None:
        try:
            await call
        except HeadraceError as error:
            if is_refusal(error) or error.code in ("NOT_FOUND", "DEADLINE_EXCEEDED"):
                raise Impossible(f"not drained: {error.code}") from error
            raise
