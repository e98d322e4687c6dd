"""Calls to Redis, retried after lost answers until one is definite, and blocking reads; one node, Sentinel or a cluster.

``Node.call`` repeats until the answer is definite, or until its bound. Every script and command of ours is safe
to repeat, so a lost answer costs a repetition and never a request (docs/delivery.md).

Producers (gateways) pass a short bound and fail fast with UNAVAILABLE; consumers (schedulers) wait for ever,
because a stalled Redis must end nothing. Blocking reads have connections of their own, whose socket time-out
exceeds the block.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import redis.exceptions

from common.backoff import backoff_delays_s
from common.errors import Unavailable
from common.streams.addresses import parse_address
from common.streams.connections import RedisClient, connect, node_of, primaries
from common.streams.transient import SUSPECTS, is_transient
from common.streams.vault import Vault

__all__ = ["BLOCK_MS", "Node", "RedisClient", "decoded", "queue_unavailable"]

BLOCK_MS = 2_000
"""Longest blocking read: short enough that a half-open connection or a flushed key is noticed soon."""

_SOCKET_TIMEOUT_S = 2.0
"""Far above any command of ours on a healthy node; a stalled node is noticed and the call repeated."""

T = TypeVar("T")


class Node:
    """The Redis at one address, with a pool for calls and separate connections for blocking reads."""

    def __init__(self, url: str, vault: Vault | None = None) -> None:
        """``url`` has one of the forms of ``common.streams.addresses``. Connects on first use.

        ``vault`` encrypts what people wrote and models answered.

        Raises:
            BadRedisUrl: it has none of them.
        """
        address = parse_address(url)
        self._calls = connect(address, _SOCKET_TIMEOUT_S)
        self._reads = connect(address, BLOCK_MS / 1000 + _SOCKET_TIMEOUT_S)
        self.url = url
        self.vault = vault or Vault()
        self.num_errors = 0
        self.last_error: str | None = None
        self.is_taught = False  # kept by ``common.streams.scripts``

    async def call(
        self, operation: Callable[[RedisClient], Awaitable[T]], *, bound_s: float | None = None
    ) -> T:
        """The definite answer of ``operation``, repeated over transient errors for ``bound_s`` (None: for ever).

        Raises:
            Unavailable: no definite answer within the bound; whether it was applied is unknown.
        """
        loop = asyncio.get_running_loop()
        gives_up_at = None if bound_s is None else loop.time() + bound_s
        pauses_s = backoff_delays_s(random.random, first_s=0.02, max_s=0.5)
        for pause_s in pauses_s:
            left_s = None if gives_up_at is None else gives_up_at - loop.time()
            try:
                async with asyncio.timeout(left_s):
                    return await _uncovered(operation(self._calls.client))
            except SUSPECTS as error:
                self._note(error)
                if gives_up_at is not None and loop.time() + pause_s >= gives_up_at:
                    raise queue_unavailable() from error
            await asyncio.sleep(pause_s)
        raise AssertionError("delays have no end")

    async def read(self, operation: Callable[[RedisClient], Awaitable[T]]) -> T | None:
        """One blocking read; None after a transient error (and a short pause): the caller's loop goes on."""
        try:
            return await _uncovered(operation(self._reads.client))
        except SUSPECTS as error:
            self._note(error)
            await asyncio.sleep(0.1)
            return None

    async def is_healthy(self, key: str | None = None) -> bool:
        """Whether the node that serves ``key`` (of a cluster without ``key``: every primary) answers a ping now."""
        client = self._calls.client
        try:
            async with asyncio.timeout(_SOCKET_TIMEOUT_S):
                node = client if key is None else await _uncovered(node_of(client, key))
                return bool(await _uncovered(node.ping()))
        except SUSPECTS as error:
            self._note(error)
            return False

    async def time_ms(self, key: str | None = None, *, bound_s: float | None = None) -> int:
        """The clock of the node that serves ``key``, Unix milliseconds; of a cluster without ``key``: any node's."""

        async def operation(client: RedisClient) -> tuple[int, int]:
            if key is None:
                return await random.choice(await primaries(client)).time()  # noqa: S311 - no secret
            return await (await node_of(client, key)).time()

        seconds, micros = await self.call(operation, bound_s=bound_s)
        return int(seconds) * 1000 + int(micros) // 1000

    async def eviction_policy(self) -> str | None:
        """``maxmemory-policy``, or None where CONFIG is not allowed. Of a cluster: the worst of its primaries'."""

        async def operation(client: RedisClient) -> list[str]:
            configs = [
                await node.config_get("maxmemory-policy") for node in await primaries(client)
            ]
            return [_text(value) for config in configs for value in config.values()]

        try:
            policies = await self.call(operation)
        except redis.exceptions.ResponseError:
            return None
        return max(policies, key=lambda policy: policy != "noeviction", default=None)

    async def close(self) -> None:
        """Close all connections."""
        try:
            await self._calls.aclose()
        finally:
            await self._reads.aclose()

    def _note(self, error: Exception) -> None:
        """Count a transient error; any other is raised."""
        if not is_transient(error):
            raise error
        self.num_errors += 1
        self.last_error = f"{type(error).__name__}: {error}"


async def _uncovered(operation: Awaitable[T]) -> T:
    """The result of ``operation``, unless the task was cancelled meanwhile.

    The client library sends through ``asyncio.wait_for``, which before Python 3.12 loses a cancellation that comes
    in the same moment as the result or the error: the task would then run on, or repeat its call, for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    num_cancels = task.cancelling()
    try:
        result = await operation
    except SUSPECTS as error:
        if task.cancelling() > num_cancels:
            raise asyncio.CancelledError from error
        raise
    if task.cancelling() > num_cancels:
        raise asyncio.CancelledError
    return result


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
