"""Whether a process is ready and alive: state that health service, ``/readyz`` and ``/livez`` share."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from common.clock import monotonic_s
from common.domain import Clock

# A loop that does not turn for this long serves nobody; long enough for a first model load's imports.
MAX_LOOP_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that has to hold, and what to say while it does not."""

    holds: bool
    detail: str = ""


class Readiness:
    """Named conditions that all have to hold; none stated yet means starting.

    The event loop writes, any thread reads: each change replaces the whole mapping.
    """

    def __init__(self) -> None:
        """Not ready."""
        self._conditions: Mapping[str, Condition] = MappingProxyType({})
        self._changed = asyncio.Event()

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """What is stated now."""
        return self._conditions

    @property
    def ready(self) -> bool:
        """Whether everything stated holds."""
        conditions = self._conditions
        return bool(conditions) and all(item.holds for item in conditions.values())

    def set(self, name: str, *, holds: bool, detail: str = "") -> None:
        """State a condition."""
        condition = Condition(holds, detail)
        if self._conditions.get(name) == condition:
            return
        self._conditions = MappingProxyType({**self._conditions, name: condition})
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def next_change(self) -> asyncio.Event:
        """Set at the next change. Take it before reading the state, or with no ``await`` in between."""
        return self._changed


class Liveness:
    """Whether the event loop still turns; asked from a thread outside of it."""

    def __init__(self, clock: Clock = monotonic_s) -> None:
        """Alive from now on."""
        self._clock = clock
        self._last_beat_s = clock()

    def beat(self) -> None:
        """The loop has turned."""
        self._last_beat_s = self._clock()

    @property
    def silence_s(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._last_beat_s

    @property
    def alive(self) -> bool:
        """Whether the last beat is recent."""
        return self.silence_s <= MAX_LOOP_SILENCE_S
