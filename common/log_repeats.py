"""Keeps a library that repeats one complaint from drowning everything else."""

import logging

from common.clock import monotonic_s
from common.domain import Clock

REPEAT_INTERVAL_S = 60.0


class RepeatFilter(logging.Filter):
    """Passes a message of the named loggers once, and then once in each interval.

    An exporter whose receiver is away complains several times a second of it, for as long as it is away.
    """

    def __init__(self, prefixes: tuple[str, ...], clock: Clock = monotonic_s) -> None:
        """``prefixes`` begin the names of the loggers concerned."""
        super().__init__()
        self._prefixes = prefixes
        self._clock = clock
        # Bounded: keyed by the texts in the library's source, before anything is filled in.
        self._last_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write ``record``."""
        if not record.name.startswith(self._prefixes):
            return True
        key = (record.name, str(record.msg))
        now_s = self._clock()
        if now_s - self._last_s.get(key, -REPEAT_INTERVAL_S) < REPEAT_INTERVAL_S:
            return False
        self._last_s[key] = now_s
        return True
