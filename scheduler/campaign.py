"""Runs for the lead of one partition: stands by, takes and renews the lease, leads, stands by again.

stand by ──lease free, or its holder silent for it──▶ lead ──lease lost──▶ stand by
                                                      └──process stops, or leads too much──▶ give the lease back
"""

import asyncio
from collections.abc import Awaitable, Callable

from common.absence import Absence
from common.domain import Clock, Partition
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.logs import Log
from common.streams import leases
from common.streams.leases import LeaderLease
from common.streams.node import Node
from scheduler.balance import Balance
from scheduler.lease import LEASE_S, RENEW_INTERVAL_S, HeldLease

_TIMEOUT_S = RENEW_INTERVAL_S
"""A look or a renewal that takes longer is repeated rather than waited for."""

_MAX_GAP_S = LENGTHS.leader_look_gap_s


class _LeaseLost(Exception):
    """Somebody else leads."""


class Campaign:
    """One partition's lead, wanted for as long as the process serves."""

    def __init__(
        self,
        node: Node,
        partition: Partition,
        identity: LeaderLease,
        lead: Callable[[Partition, HeldLease, asyncio.Event], Awaitable[None]],
        *,
        balance: Balance,
        stopping: asyncio.Event,
        clock: Clock,
        log: Log,
    ) -> None:
        """``lead`` leads until the event that it is given is set; it is cancelled when the lease is lost."""
        self._node = node
        self._partition = partition
        self._identity = identity
        self._lead = lead
        self._balance = balance
        self._leaving = asyncio.Event()
        self._stopping = stopping
        self._clock = clock
        self._log = log.bind(partition=str(partition))

    def leave(self) -> None:
        """Let somebody else lead, in good order: what is in flight is written, the workers are sent on."""
        self._leaving.set()

    async def run(self) -> None:
        """Stand by and lead until the process stops."""
        while not self._stopping.is_set():
            lease = await self._stand_by()
            if lease is not None:
                await self._hold(lease)

    async def _stand_by(self) -> HeldLease | None:
        """Wait for the lead; None when the process stops first."""
        absence = Absence(LEASE_S, _MAX_GAP_S)
        while not self._stopping.is_set():
            try:
                if await self._is_free(absence) and self._balance.may_take(
                    self._partition, self._clock()
                ):
                    lease = HeldLease(self._clock)
                    if await self._renew_once(lease):
                        return lease
            except Unavailable:
                absence.interrupt()
            await self._pause(absence.next_look_s(RENEW_INTERVAL_S))
        return None

    async def _is_free(self, absence: Absence) -> bool:
        asked_s = self._clock()
        seen = await leases.look_at_leader(self._node, self._partition, bound_s=_TIMEOUT_S)
        # Our own former lease: whoever led under it in this process has ended.
        is_present = seen is not None and seen.leader != self._identity
        if absence.saw(
            present=is_present,
            asked_s=asked_s,
            now_s=self._clock(),
            renewed_ago_s=None if seen is None else seen.renewed_ago_s,
        ):
            return True
        if is_present:
            self._balance.is_led(self._partition)
            return False
        return seen is not None or await leases.is_lease_free(
            self._node, self._partition, bound_s=_TIMEOUT_S
        )

    async def _hold(self, lease: HeldLease) -> None:
        was_lost = False
        self._leaving.clear()
        if self._stopping.is_set():
            self._leaving.set()
        self._balance.leads(self._partition)
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew(lease))
                await self._lead(self._partition, lease, self._leaving)
                renewing.cancel()
        except* _LeaseLost:
            was_lost = True
        finally:
            self._balance.left(self._partition)
        if was_lost:
            self._log.warning("lease lost")
            if (me := asyncio.current_task()) is not None and me.cancelling():
                raise asyncio.CancelledError  # which the group drops when a task of it fails
        else:
            await self._give_back()

    async def _give_back(self) -> None:
        try:
            await leases.release_leader_lease(
                self._node, self._partition, self._identity, bound_s=_TIMEOUT_S
            )
        except Unavailable:
            self._log.warning("lease not given back")

    async def _renew(self, lease: HeldLease) -> None:
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            try:
                if not await self._renew_once(lease):
                    lease.lost()
                    raise _LeaseLost
            except Unavailable:
                continue  # the lease runs out by itself, and writing stops with it

    async def _renew_once(self, lease: HeldLease) -> bool:
        asked_s = self._clock()
        holder = await leases.hold_leader_lease(
            self._node, self._partition, self._identity, bound_s=_TIMEOUT_S
        )
        if holder != self._identity:
            return False
        lease.renewed(asked_s)
        return True

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return
