"""Asking several at once."""

import asyncio

from common.streams.first_answer import first_answer


async def test_one_that_hangs_delays_nobody():
    """The first who knows is heard, and whoever still thinks is told to stop."""
    stopped = asyncio.Event()

    async def hangs() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return 1

    async def knows_nothing() -> None:
        return None

    async def knows() -> int:
        return 2

    assert await first_answer([hangs(), knows_nothing(), knows()]) == 2
    assert stopped.is_set()


async def test_nobody_knows():
    """When all have answered that they do not know, or nobody was asked, there is no answer."""

    async def knows_nothing() -> None:
        return None

    assert await first_answer([knows_nothing(), knows_nothing()]) is None
    assert await first_answer([]) is None
