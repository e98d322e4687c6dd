"""Keeps a session alive: dials one scheduler after the other, goes where it is sent, and waits longer after each failure."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from common.backoff import Random, backoff_delays_s
from common.logs import get_log
from worker.session.session import Ended

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 2.0

_log = get_log(__name__)


class OneSession(Protocol):
    """What the dialer asks of a session."""

    is_welcome: bool

    async def run(self) -> Ended:
        """Hold it until it is over."""
        ...

    def leave(self, grace_s: float, reason: str) -> None:
        """Let it end in good order."""
        ...


class Dialer:
    """Dials until it is told to leave, by us or by a scheduler."""

    def __init__(
        self,
        addresses: Sequence[str],
        open_session: Callable[[str], OneSession],
        *,
        on_end: Callable[[Ended], None],
        random_01: Random = random.random,
    ) -> None:
        """``addresses`` are tried in turn; ``on_end`` hears of each session that is over."""
        assert addresses
        self._addresses = tuple(addresses)
        self._open_session = open_session
        self._on_end = on_end
        self._random = random_01
        self._session: OneSession | None = None
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Hold sessions, one at a time, until one has ended with leaving."""
        delays, next_address = self._new_delays(), self._in_turn()
        address, was_redirected = next(next_address), False
        while not self._leaving.is_set():
            session = self._session = self._open_session(address)
            ended = await session.run()
            self._session = None
            self._on_end(ended)
            if ended.has_left:
                return
            _log.warning("session_over", address=address, reason=ended.reason)
            if session.is_welcome:
                delays, was_redirected = self._new_delays(), False
            # A redirect is followed at once, but two schedulers that send us to each other get no storm.
            if not ended.redirect or was_redirected:
                await self._pause(next(delays))
            address, was_redirected = ended.redirect or next(next_address), bool(ended.redirect)

    def leave(self, grace_s: float, reason: str) -> None:
        """Finish what runs within ``grace_s``, then let ``run`` return."""
        self._leaving.set()
        if self._session is not None:
            self._session.leave(grace_s, reason)

    async def _pause(self, delay_s: float) -> None:
        """Wait, but not longer than until leaving."""
        try:
            async with asyncio.timeout(delay_s):
                await self._leaving.wait()
        except TimeoutError:
            return

    def _in_turn(self) -> Iterator[str]:
        while True:
            yield from self._addresses

    def _new_delays(self) -> Iterator[float]:
        return backoff_delays_s(self._random, first_s=FIRST_DELAY_S, max_s=MAX_DELAY_S)
