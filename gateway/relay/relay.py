"""Opens followers, keeps them awake, and says goodbye to the request when a client leaves."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from common.clock import monotonic_s
from common.domain import RequestId
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.logs import Log
from common.streams import following, leases
from common.streams.node import Node
from gateway.background import Background, until_found
from gateway.relay.follower import LOOK_AFTER_S, Follower
from gateway.relay.mailbox import Mailbox
from gateway.relay.readers import Readers
from gateway.relay.recent_ends import RecentEnds
from gateway.relay.returning import Attendance, return_all
from gateway.relay.wakefulness import TICK_S, Wakefulness
from gateway.settings import LONGEST_LIFE_S

_TICK_S = LENGTHS.gateway_renewal_s
_LEASE_BOUND_S = 1.0
# A client that hangs up because its deadline passed: the scheduler is about to end the request as expired,
# and must not find it cancelled.
_DEADLINE_GRACE_MS = 5_000
_NEAR_DEADLINE_S = 0.25
# A client that took this gateway for gone while it slept, or was told that it is cut off from the queue, and comes back
# through another one or a new connection.
_ELSEWHERE_GRACE_MS = round(LENGTHS.orphan_grace_s * 1000)


class Relay:
    """One gateway's followers, its lease and its log."""

    def __init__(
        self,
        node: Node,
        gateway_id: str,
        background: Background,
        log: Log,
        *,
        keepalive_s: float,
        resume_grace_s: float,
    ) -> None:
        """``gateway_id`` is this incarnation's."""
        self._node = node
        self._background = background
        self._log = log
        self._resume_grace_ms = round(resume_grace_s * 1000)
        self._idle_s = min(LOOK_AFTER_S, keepalive_s)
        self._followers: dict[Follower, str] = {}
        self._attendance = Attendance()
        self._wakefulness = Wakefulness(monotonic_s())
        self._all_left = asyncio.Event()
        self._all_left.set()
        self._closing: Unavailable | None = None
        self.is_cut_off = False
        """Whether Redis has not been reached for a lease, so that who follows here counts for nobody."""
        self.gateway_id = gateway_id
        self.recent_ends = RecentEnds()
        self.readers = Readers(node, gateway_id, background, log)

    @property
    def num_followers(self) -> int:
        """Clients that follow a request now."""
        return len(self._followers)

    def new_name(self) -> str:
        """A follower's name; of equal length, because the leaving script goes by prefixes."""
        return f"{self.gateway_id}:{secrets.token_hex(8)}"

    @contextmanager
    def following(
        self,
        request_id: RequestId,
        name: str,
        mailbox: Mailbox,
        *,
        log_name: str,
        after: str = "0-0",
    ) -> Iterator[Follower]:
        """A follower that reads the log from its reader's position on, and leaves the request at the end."""
        if self._closing is not None:
            raise self._closing
        with self.readers.reading(log_name, after) as reader:
            follower = Follower(self._node, request_id, mailbox, reader)
            reader.add(str(request_id), mailbox)
            self._followers[follower] = name
            self._all_left.clear()
            try:
                yield follower
            finally:
                del self._followers[follower]
                reader.remove(str(request_id), mailbox)
                if not self._followers:
                    self._all_left.set()
                if mailbox.is_done:
                    self.recent_ends.note(str(request_id))
                elif follower.is_joined:
                    self._leave(follower, name)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        """Cancel a request of which nobody knows whether it was admitted, as soon as Redis can tell."""
        self._background.start(
            self._cancel_if_admitted(request_id, reason),
            f"cancel {request_id}",
            within_s=LONGEST_LIFE_S,
        )

    def leave_late(self, request_id: RequestId, name: str) -> None:
        """Leave a request of which nobody knows whether it was admitted for ``name``: for the grace it runs on."""
        self._background.start(
            self._leave_if_admitted(request_id, name),
            f"leave {request_id}",
            within_s=LONGEST_LIFE_S,
        )

    async def stay_awake(self) -> None:
        """Notice when it did not, until cancelled."""
        while True:
            self._wakefulness.tick(monotonic_s())
            await asyncio.sleep(TICK_S)

    async def run(self) -> None:
        """Keep lease, mark and followers alive, until cancelled."""
        while True:
            for follower in [*self._followers]:
                follower.poke(monotonic_s(), self._idle_s)
            try:
                await self._renew()
                await self.readers.move_mark()
            except Unavailable:
                self._log.warning("lease not renewed", error=self._node.last_error)
            self._note_cut_off(self._attendance.is_away(monotonic_s()))
            await asyncio.sleep(min(_TICK_S, self._idle_s))

    async def finish(self, within_s: float, goodbye_s: float) -> None:
        """Let followers finish; those that have not by then are told to go on elsewhere, and get a moment to hear it."""
        try:
            async with asyncio.timeout(within_s):
                await self._all_left.wait()
        except TimeoutError:
            self._log.info("streams cut for the stop", num_streams=self.num_followers)
        self._closing = Unavailable(
            "the gateway is stopping; attach at another one",
            reason="SHUTTING_DOWN",
            retry_after_s=1.0,
        )
        for follower in [*self._followers]:
            follower.end(self._closing)
        # A client that does not read keeps its stream until the server cuts it.
        with suppress(TimeoutError):
            async with asyncio.timeout(goodbye_s):
                await self._all_left.wait()

    async def release(self, within_s: float) -> None:
        """Give the lease back."""
        try:
            await leases.release_gateway(self._node, self.gateway_id, bound_s=within_s)
        except Unavailable:
            self._log.warning("lease not released", error=self._node.last_error)

    async def _renew(self) -> None:
        asked_s = monotonic_s()
        await leases.renew_gateway(self._node, self.gateway_id, bound_s=_LEASE_BOUND_S)
        if self._attendance.renewed(asked_s, monotonic_s()) and self._followers:
            self._log.warning("lease was missing", num_streams=self.num_followers)
            self._background.start(
                return_all(self._node, self._followers, self._leave),
                "followers return",
                within_s=LONGEST_LIFE_S,
            )

    def _note_cut_off(self, is_cut_off: bool) -> None:
        """Streams are told each time: a client that found no other gateway looks again."""
        if is_cut_off and not self.is_cut_off:
            self._log.warning("cut off from the queue", num_streams=self.num_followers)
        if is_cut_off or self.is_cut_off:
            for follower in [*self._followers]:
                follower.note_cut_off(is_cut_off)
        self.is_cut_off = is_cut_off

    def _leave(self, follower: Follower, name: str) -> None:
        now_s = monotonic_s()
        if self._closing is not None:
            grace_ms = self._resume_grace_ms
        elif now_s >= follower.expires_s - _NEAR_DEADLINE_S:
            grace_ms = _DEADLINE_GRACE_MS
        elif (
            follower.is_trial
            or self._wakefulness.has_slept(now_s)
            or self._attendance.was_away(now_s)
        ):
            grace_ms = _ELSEWHERE_GRACE_MS
        else:
            grace_ms = 0
        self._background.start(
            following.leave(
                self._node, follower.request_id, name, grace_ms=grace_ms, bound_s=None
            ),
            f"leave {follower.request_id}",
            within_s=LONGEST_LIFE_S,
        )

    async def _cancel_if_admitted(self, request_id: RequestId, reason: str) -> None:
        async def cancel() -> bool:
            found = await following.cancel(self._node, request_id, reason, bound_s=None)
            return found is not None

        await until_found(cancel)

    async def _leave_if_admitted(self, request_id: RequestId, name: str) -> None:
        async def leave() -> bool:
            found = await following.leave(
                self._node, request_id, name, grace_ms=self._resume_grace_ms, bound_s=None
            )
            return found != "missing"

        await until_found(leave)
