"""Calls that come while another is under way travel together in the next round trip, so that many at once cost little.

Only calls of one slot travel together: a node that is slow or away delays nobody else's. One that finds nothing under
way goes at once, alone. A call's bound counts from its coming, whatever it travels with.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import redis.exceptions

from common.streams.node import Node, queue_unavailable
from common.streams.scripts import ScriptCall, run_script, run_scripts

Answer = list[bytes | int]
Start = Callable[[Coroutine[Any, Any, None], str], object]

# Bounds how long one trip keeps Redis busy, which does nothing else meanwhile.
_MAX_CALLS = 64


@dataclass(slots=True, eq=False)
class _Waiting:
    call: ScriptCall
    answer: asyncio.Future[Answer]


class SharedTrips:
    """For calls that may be repeated, and whose answers do not depend on one another."""

    def __init__(self, node: Node, start: Start, *, bound_s: float) -> None:
        """``start`` gives a trip's task its parent."""
        self._node = node
        self._start = start
        self._bound_s = bound_s
        self._waiting: dict[str, list[_Waiting]] = {}
        """By slot, while a trip of it is under way."""

    async def run(self, slot: str, call: ScriptCall) -> Answer:
        """The script's answer.

        Raises:
            Unavailable: no definite answer within the bound; whether it was applied is unknown.
        """
        waiting = self._waiting.get(slot)
        if waiting is None:
            self._waiting[slot] = []
            try:
                return await run_script(self._node, call, bound_s=self._bound_s)
            finally:
                self._go_on(slot)
        one = _Waiting(call, asyncio.get_running_loop().create_future())
        waiting.append(one)
        try:
            async with asyncio.timeout(self._bound_s):
                return await one.answer
        except TimeoutError as error:
            raise queue_unavailable() from error

    def _go_on(self, slot: str) -> None:
        """A trip is over: whoever has come meanwhile and is still there makes the next."""
        waiting = [one for one in self._waiting[slot] if not one.answer.done()]
        if not waiting:
            del self._waiting[slot]
            return
        self._waiting[slot] = waiting[_MAX_CALLS:]
        self._start(self._travel(slot, waiting[:_MAX_CALLS]), f"calls for {slot}")

    async def _travel(self, slot: str, together: list[_Waiting]) -> None:
        for one, answer in zip(together, await self._answers(together), strict=True):
            if one.answer.done():  # who asked has left
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
        self._go_on(slot)

    async def _answers(self, together: list[_Waiting]) -> list[Answer | Exception]:
        """Of each call; one that Redis refuses as wrong harms no other."""
        calls = [one.call for one in together]
        try:
            return [*await run_scripts(self._node, calls, bound_s=self._bound_s)]
        except redis.exceptions.ResponseError as error:
            if len(together) == 1:
                return [error]
            return [answer for one in together for answer in await self._answers([one])]
        except Exception as error:  # noqa: BLE001 - told to each caller, whose edge knows what to make of it
            return [error] * len(together)
