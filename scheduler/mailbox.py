"""Messages to the one task that owns a partition's state."""

import asyncio
from typing import Generic, TypeVar

M = TypeVar("M")


class Mailbox(Generic[M]):
    """Anybody posts, one task collects. Posting never waits: credits and backlogs bound what can come."""

    def __init__(self) -> None:
        """Empty."""
        self._messages: list[M] = []
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def post(self, message: M) -> None:
        """Leave a message."""
        self._messages.append(message)
        self._arrived.set()

    def wake(self) -> None:
        """Let the collector look around without a message."""
        self._arrived.set()

    async def collect(self, within_s: float) -> list[M]:
        """Everything that has come, waiting up to ``within_s`` for the first."""
        if not self._messages and within_s > 0:
            self._arrived.clear()
            # Cheaper than asyncio.timeout, which cancels and catches: this runs once per engine step.
            alarm = asyncio.get_running_loop().call_later(within_s, self._arrived.set)
            try:
                await self._arrived.wait()
            finally:
                alarm.cancel()
        messages, self._messages = self._messages, []
        return messages
