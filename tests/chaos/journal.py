"""What happened, in order: counts for the figures, histories and failures for whoever has to find out why."""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.client import HeadraceError

_MAX_LINES_OF_A_HISTORY = 400
_NUM_SILENCES = 5


class History:
    """One request's life as its clients saw it. The first lines go when it is too long: a failure is at the end."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.request_ids: list[str] = []
        self.num_exposures = 0
        """Faults since its beginning that may have cost it a worker."""
        self.num_breaks = 0
        """Streams that broke and were continued by Attach."""
        self.lines: deque[str] = deque(maxlen=_MAX_LINES_OF_A_HISTORY)

    def note(self, line: str) -> None:
        """One more fact, with its time."""
        self.lines.append(f"{datetime.now(UTC).isoformat(timespec='milliseconds')}  {line}")

    def name(self, request_id: str) -> None:
        """A request of this history was accepted."""
        if request_id not in self.request_ids:
            self.request_ids.append(request_id)
            self.note(f"accepted {request_id}")


@dataclass(frozen=True)
class Failure:
    """Something that must not be."""

    message: str
    history: History | None = None


@dataclass
class Recovery:
    """How long clients of each model waited for a token after the end of a fault."""

    kind: str
    healed_s: float
    waiting: set[str]
    took_s: dict[str, float] = field(default_factory=dict)
    is_alone: bool = True
    """Whether no other fault came between."""


class Journal:
    """Of one run."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.open: set[History] = set()
        self.recoveries: list[Recovery] = []
        self.fault_lines: list[str] = []
        self._recovering: list[Recovery] = []
        self._num_waiting: Counter[str] = Counter()
        self._num_stranded = 0
        self._stranded_until_s = float("-inf")
        self.silences: list[tuple[float, float, str]] = []
        """The longest times between two tokens of one request: how long, until when in the run, which request."""

    def fail(self, message: str, history: History | None = None) -> None:
        """Note a failure; the run goes on, because what follows may tell more."""
        self.failures.append(Failure(message, history))
        if history is not None:
            history.note(f"FAILED: {message}")

    def fault(self, line: str) -> None:
        """Note what was done to the stack."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.fault_lines.append(f"{now} ({self.elapsed_s:6.1f} s)  {line}")

    @property
    def elapsed_s(self) -> float:
        """Since the run began."""
        return time.monotonic() - self.began_s

    @property
    def max_exposures(self) -> int:
        """Of all requests that are open."""
        return max((history.num_exposures for history in self.open), default=0)

    def expose(self) -> None:
        """A fault that may cost every open request its worker."""
        for history in self.open:
            history.num_exposures += 1

    @contextlib.contextmanager
    def stranding(self) -> Iterator[None]:
        """A gateway is cut off for longer than what it follows outlives it."""
        self._num_stranded += 1
        try:
            yield
        finally:
            self._num_stranded -= 1
            self._stranded_until_s = time.monotonic()

    def is_stranded(self, error: HeadraceError, since_s: float) -> bool:
        """Whether that may have cancelled a whole answer that was asked for at `since_s` of the monotonic clock."""
        is_stranding = self._num_stranded > 0 or self._stranded_until_s >= since_s
        return error.code == "CANCELLED" and is_stranding

    def silence(self, took_s: float, history: History) -> None:
        """A stream had no token for so long."""
        request_id = history.request_ids[-1] if history.request_ids else ""
        self.silences.append((took_s, self.elapsed_s, request_id))
        if len(self.silences) > 4 * _NUM_SILENCES:
            self.silences = sorted(self.silences, reverse=True)[:_NUM_SILENCES]

    def disturbed(self) -> None:
        """A new fault begins: who still waits did not wait for one fault alone."""
        for recovery in self._recovering:
            recovery.is_alone = False

    @contextlib.contextmanager
    def waiting(self, model: str) -> Iterator[None]:
        """A client waits for a model's tokens."""
        self._num_waiting[model] += 1
        try:
            yield
        finally:
            self._num_waiting[model] -= 1

    def healed(self, kind: str) -> None:
        """A fault is over; the next token of each model that somebody waits for ends its recovery."""
        models = {model for model, count in self._num_waiting.items() if count}
        recovery = Recovery(kind, time.monotonic(), models)
        self.recoveries.append(recovery)
        self._recovering.append(recovery)

    def token(self, model: str) -> None:
        """A client got a new token."""
        self.counts["tokens"] += 1
        if not self._recovering:
            return
        now_s = time.monotonic()
        for recovery in self._recovering:
            if model in recovery.waiting:
                recovery.waiting.discard(model)
                recovery.took_s[model] = now_s - recovery.healed_s
        self._recovering = [recovery for recovery in self._recovering if recovery.waiting]
