"""Asks several at once and takes the first who knows: one that hangs costs nothing but its own time-out."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def first_answer(questions: Iterable[Awaitable[T | None]]) -> T | None:
    """The first answer that is not None; None when all are.

    Questions bound themselves (connections have time-outs) and turn their own failures into None.
    """
    waiting = {asyncio.ensure_future(question) for question in questions}
    tasks = frozenset(waiting)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (answer := task.result()) is not None:
                    return answer
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
