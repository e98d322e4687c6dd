"""Bystanders: healthy streams beside whatever a test does to others, and the probes that follow every case.

WITNESS   their tokens, text and seq are those of an undisturbed run
KVFREE    no block in use, nothing running, nothing waiting
PELZERO   no inbox entry, no key that stays and was not there before
ALIVE     a control request is answered as before
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import Stack

CONTROL: dict[str, Any] = {"model": "sim", "max_tokens": 12, "temperature": 0.0}
_GAUGES = ("headrace_num_requests_running", "headrace_num_requests_waiting")


class Witnesses:
    """Streams of one client, each about `tokens` tokens long."""

    def __init__(self, stack: Stack, client: AsyncClient, *, count: int, tokens: int) -> None:
        self._stack = stack
        self._client = client
        self._tokens = tokens
        self._num = count
        self._running: list[asyncio.Task[Outcome]] = []
        self._control: Outcome | None = None
        self._keys: set[str] = set()

    async def begin(self) -> None:
        """Note how things are, start the streams, and return once all of them have tokens."""
        self._control = await collect(self._client, "control", **CONTROL)
        assert self._control.error is None, self._control.error
        self._keys = self._stack.keys_without_ttl()
        counts = [TokenCount() for _ in range(self._num)]
        self._running = [
            asyncio.create_task(self._stream(number, count)) for number, count in enumerate(counts)
        ]
        for count in counts:
            await count.reach(1)  # a short one may have ended by now

    async def check(self) -> None:
        """Everything else has ended: let the streams end, then probe."""
        outcomes = await asyncio.gather(*self._running)
        await asyncio.to_thread(self._check_left)
        expected = await asyncio.gather(
            *(self._stream(number, TokenCount()) for number in range(self._num))
        )
        for got, wanted in zip(outcomes, expected, strict=True):
            assert got.error is None, got.error
            assert wanted.error is None, wanted.error
            assert got.answer == wanted.answer, "a witness was disturbed"
            assert got.usage.completion_tokens == self._tokens
        again = await collect(self._client, "control", **CONTROL)
        assert self._control is not None
        assert again.answer == self._control.answer, "ALIVE"

    async def cancel(self) -> None:
        """The test has failed: nobody waits for them."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _check_left(self) -> None:
        stack = self._stack
        alive = [worker for worker in stack.workers if worker.process.poll() is None]
        for worker in alive:
            eventually(lambda w=worker: stack.metric(w, "headrace_kv_cache_usage_ratio") == 0)
        for process in (*alive, *stack.schedulers):
            for name in _GAUGES:
                eventually(lambda p=process, n=name: stack.metric(p, n) == 0)
        eventually(lambda: stack.pending_entries() == 0)
        eventually(lambda: stack.keys_without_ttl() <= self._keys)

    async def _stream(self, number: int, count: TokenCount) -> Outcome:
        return await collect(
            self._client,
            f"witness {number}",
            count=count,
            model="sim",
            max_tokens=self._tokens,
            ignore_eos=True,
            temperature=float(number % 2),
            seed=number,
            priority="critical",
        )


@contextlib.asynccontextmanager
async def witnessed(
    stack: Stack, client: AsyncClient, *, count: int = 5, tokens: int = 200
) -> AsyncIterator[Witnesses]:
    """Witness streams run beside the block; behind it all probes must hold."""
    witnesses = Witnesses(stack, client, count=count, tokens=tokens)
    await witnesses.begin()
    try:
        yield witnesses
    except BaseException:
        await witnesses.cancel()
        raise
    await witnesses.check()
