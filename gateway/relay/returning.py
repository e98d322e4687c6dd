"""An absence of the gateway (paused, or cut off from Redis): noticed while it lasts, and then its clients follow their requests again.

Paused, or cut off from Redis, for longer than its lease, a gateway comes back to requests whose leader has let its
followers leave: nobody would know any more that clients wait here, and the requests would be cancelled under them.
"""

import asyncio
from collections.abc import Callable, Mapping

from common.errors import Unavailable
from common.lengths import LENGTHS
from common.streams import following
from common.streams.node import Node
from gateway.relay.follower import Follower

_BOUND_S = LENGTHS.gateway_look_bound_s
# A leader that looked before the lease was renewed may still be about to let followers leave.
_LOOK_AGAIN_S = LENGTHS.gateway_look_gap_s
# Clients that were told of the absence leave within this after its end, on a busy machine too.
_LATE_S = 5.0


class Attendance:
    """Tells from the renewals of a lease whether it may be missing, or may have been in between."""

    def __init__(self) -> None:
        """The lease is new."""
        self._asked_s: float | None = None
        self._back_s = float("-inf")

    def renewed(self, asked_s: float, answered_s: float) -> bool:
        """A renewal was asked for and answered; whether the lease may have run out before it was applied."""
        was_away = self.is_away(answered_s)
        self._asked_s = asked_s
        if was_away:
            self._back_s = answered_s
        return was_away

    def is_away(self, now_s: float) -> bool:
        """Whether the lease may have run out: to everybody else this gateway is gone."""
        return self._asked_s is not None and now_s - self._asked_s > LENGTHS.gateway_lease_s

    def was_away(self, now_s: float) -> bool:
        """Whether it is, or was a moment ago."""
        return self.is_away(now_s) or now_s - self._back_s < _LATE_S


async def return_all(
    node: Node,
    followers: Mapping[Follower, str],
    leave: Callable[[Follower, str], None],
) -> None:
    """Let all who follow now, by their names, be known as followers again, and once more a little later.

    ``leave`` is for one whose client left while it was done: the request would be kept for nobody.
    """
    for pause_s in (0.0, _LOOK_AGAIN_S):
        await asyncio.sleep(pause_s)
        for follower, name in [*followers.items()]:
            if not follower.is_joined or follower.mailbox.is_done:
                continue
            await _follow(node, follower, name)
            if follower not in followers:
                leave(follower, name)


async def _follow(node: Node, follower: Follower, name: str) -> None:
    while True:
        try:
            await following.follow(node, follower.request_id, name, bound_s=_BOUND_S)
        except Unavailable:
            continue  # away again: whoever waits here still does
        return
