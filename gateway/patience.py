"""How long a client that does not read its stream is waited for, by gRPC and HTTP alike."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from common.errors import Aborted

READ_WITHIN_S = 60.0
"""A client that takes nothing for so long loses its stream, which cancels what it alone followed."""

T = TypeVar("T")


@asynccontextmanager
async def patient(
    write: Callable[[T], Awaitable[Any]],
) -> AsyncIterator[Callable[[T], Awaitable[None]]]:
    """``write`` for the block, which is left when one waits too long: a client's window stays full if it does not read.

    Raises:
        Aborted: nothing was read in that time.
    """
    loop = asyncio.get_running_loop()
    bound = asyncio.timeout(None)
    timer: asyncio.TimerHandle
    began_s: float | None = None

    async def bounded(message: T) -> None:
        nonlocal began_s
        began_s = loop.time()
        await write(message)
        began_s = None

    def look() -> None:
        # One timer a stream, set anew when it rings: one for each write would cost as much as the event does.
        nonlocal timer
        left_s = READ_WITHIN_S - (0.0 if began_s is None else loop.time() - began_s)
        if left_s > 0:
            timer = loop.call_later(left_s, look)
        else:
            bound.reschedule(loop.time())

    try:
        async with bound:
            timer = loop.call_later(READ_WITHIN_S, look)
            try:
                yield bounded
            finally:
                timer.cancel()
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise Aborted(
            f"the client read nothing for {READ_WITHIN_S:g} s", reason="READER_TOO_SLOW"
        ) from error
