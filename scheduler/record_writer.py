"""Writes the records of one partition: one pipeline in flight, what is asked for meanwhile goes into the next.

All records of a partition live on one node, so one queue delays nobody else's; and because it is a queue, the writes
of one request are applied in the order in which they were asked for, without waiting for one another's answers.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from common.errors import Unavailable
from common.streams.node import Node
from common.streams.ownership import Answer, RecordStep, run_steps
from scheduler.lease import HeldLease

# Bounds how long one pipeline keeps Redis busy and how long its answers keep the loop busy.
_MAX_STEPS = 256

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Answered(Generic[P]):
    """The answer to the write that was asked for with ``purpose``."""

    purpose: P
    answer: Answer


class RecordWriter(Generic[P]):
    """The writes that are asked for; ``run`` makes them."""

    def __init__(
        self, node: Node, lease: HeldLease, post: Callable[[list[Answered[P]]], None]
    ) -> None:
        """``post`` hears the answers of each round trip."""
        self._node = node
        self._lease = lease
        self._post = post
        self._steps: list[tuple[RecordStep, P]] = []
        self._wanted = asyncio.Event()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be written or being written."""
        return not (self._steps or self._is_writing)

    def ask(self, step: RecordStep, purpose: P) -> None:
        """Make this write, after those asked for before."""
        self._steps.append((step, purpose))
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._steps:
                await self._write_once()

    async def _write_once(self) -> None:
        batch, self._steps = self._steps[:_MAX_STEPS], self._steps[_MAX_STEPS:]
        self._is_writing = True
        answers = await self._run([step for step, _ in batch])
        self._is_writing = False
        self._post(
            [
                Answered(purpose, answer)
                for (_, purpose), answer in zip(batch, answers, strict=True)
            ]
        )

    async def _run(self, steps: list[RecordStep]) -> list[Answer]:
        while True:
            await self._lease.until_held()
            try:
                return await run_steps(self._node, steps, bound_s=self._lease.remaining_s)
            except Unavailable:
                continue  # the same steps again, for as long as the lease can be held
