"""How a process is asked to stop: the first signal asks, the second insists, the third kills."""

import asyncio
import os
import signal
import threading

from common.logs import Log

EXIT_FORCED = 130
"""A second signal, or the end of the grace, cut the stop short."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What is cancelled gets this long to end; then the process does, whatever a thread or a loop is stuck in.
_FORCED_EXIT_S = 5.0


class StopForced(Exception):
    """The stop was cut short."""


class StopSignals:
    """Turns SIGTERM and SIGINT into ``stopping``, and later into ``StopForced``."""

    def __init__(self, log: Log, stopping: asyncio.Event, grace_s: float) -> None:
        """Handles nothing before ``install``."""
        self._log = log
        self._stopping = stopping
        self._grace_s = grace_s
        self._insisted = asyncio.Event()
        self._last_resort = threading.Timer(_FORCED_EXIT_S, os._exit, [EXIT_FORCED])
        self._last_resort.daemon = True

    def install(self) -> None:
        """Take over the signals, in the running loop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._received, number)

    def release(self) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def done(self) -> None:
        """The process is about to end by itself: no last resort is needed."""
        self._last_resort.cancel()

    async def force(self) -> None:
        """Wait until a stop has been asked for and may take no longer.

        Raises:
            StopForced: always, unless cancelled.
        """
        await self._stopping.wait()
        try:
            async with asyncio.timeout(self._grace_s):
                await self._insisted.wait()
            reason = "second signal"
        except TimeoutError:
            reason = f"not done after {self._grace_s:g} s"
        self._last_resort.start()
        raise StopForced(reason)

    def _received(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            self._insisted.set()
            self.release()
        self._stopping.set()
        self._log.info("stop asked for", signal=number.name)
