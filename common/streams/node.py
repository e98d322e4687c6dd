"""Connections to one Redis, and the two ways to call it.

``Node.call`` repeats until the answer is definite, or until its bound. Every script and command of ours is safe
to repeat, so a lost answer costs a repetition and never a request (DESIGN §4, "Appends of unknown outcome").

Producers (gateways) pass a short bound and fail fast with UNAVAILABLE; consumers (schedulers) wait for ever,
because a stalled Redis must end nothing. Blocking reads have connections of their own, whose socket time-out
exceeds the block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from common.errors import Unavailable

BLOCK_MS = 2_000
"""Longest blocking read: short enough that a half-open connection or a flushed key is noticed soon."""

_SOCKET_TIMEOUT_S = 2.0
"""Far above any command of ours on a healthy node; a stalled node is noticed and the call repeated."""

_TRANSIENT = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    OSError,
    TimeoutError,
)
"""What passes by itself: the call is repeated. Everything else is a bug of ours and is raised."""

T = TypeVar("T")

RedisClient = (
    Any  # redis.asyncio.Redis: its stubs type every answer as a union that no caller can use
)


class Node:
    """One Redis, with a pool for calls and separate connections for blocking reads."""

    def __init__(self, url: str) -> None:
        """``url`` is a ``redis://``, ``rediss://`` or ``unix://`` address. Connects on first use."""
        self._calls = _client(url, _SOCKET_TIMEOUT_S)
        self._reads = _client(url, BLOCK_MS / 1000 + _SOCKET_TIMEOUT_S)
        self.url = url
        self.num_errors = 0
        self.last_error: str | None = None

    async def call(
        self, operation: Callable[[RedisClient], Awaitable[T]], *, bound_s: float | None = None
    ) -> T:
        """The definite answer of ``operation``, repeated over transient errors for ``bound_s`` (None: for ever).

        Raises:
            Unavailable: no definite answer within the bound; whether it was applied is unknown.
        """
        loop = asyncio.get_running_loop()
        gives_up_at = None if bound_s is None else loop.time() + bound_s
        pause_s = 0.02
        while True:
            left_s = None if gives_up_at is None else gives_up_at - loop.time()
            try:
                async with asyncio.timeout(left_s):
                    return await operation(self._calls)
            except _TRANSIENT as error:
                self._note(error)
                if gives_up_at is not None and loop.time() + pause_s >= gives_up_at:
                    raise queue_unavailable() from error
            await asyncio.sleep(pause_s)
            pause_s = min(0.5, pause_s * 2)

    async def read(self, operation: Callable[[RedisClient], Awaitable[T]]) -> T | None:
        """One blocking read; None after a transient error (and a short pause): the caller's loop goes on."""
        try:
            return await operation(self._reads)
        except _TRANSIENT as error:
            self._note(error)
            await asyncio.sleep(0.1)
            return None

    async def is_healthy(self) -> bool:
        """Whether the node answers a ping now."""
        try:
            async with asyncio.timeout(_SOCKET_TIMEOUT_S):
                return bool(await self._calls.ping())
        except _TRANSIENT as error:
            self._note(error)
            return False

    async def time_ms(self, *, bound_s: float | None = None) -> int:
        """The node's clock, Unix milliseconds."""
        seconds, micros = await self.call(lambda redis: redis.time(), bound_s=bound_s)
        return int(seconds) * 1000 + int(micros) // 1000

    async def eviction_policy(self) -> str | None:
        """``maxmemory-policy`` of the node, or None where CONFIG is not allowed."""
        try:
            config = await self.call(lambda redis: redis.config_get("maxmemory-policy"))
        except redis.exceptions.ResponseError:
            return None
        values = {_text(key): _text(value) for key, value in config.items()}
        return values.get("maxmemory-policy")

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.aclose()
        await self._reads.aclose()

    def _note(self, error: Exception) -> None:
        self.num_errors += 1
        self.last_error = f"{type(error).__name__}: {error}"


def queue_unavailable() -> Unavailable:
    """What a caller is told while Redis cannot be reached."""
    return Unavailable(
        "the queue cannot be reached", reason="QUEUE_UNAVAILABLE", retry_after_s=1.0
    )


def decoded(values: Sequence[bytes | int | None]) -> list[str]:
    """A script's answer as text; absent values are ''."""
    return [_text(value) for value in values]


def _text(value: bytes | str | int | None) -> str:
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)


def _client(url: str, socket_timeout_s: float) -> RedisClient:
    # Our own loop repeats calls (Node.call): a retry inside the library would hide how often.
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=_SOCKET_TIMEOUT_S,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
    )
