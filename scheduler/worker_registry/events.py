"""What the loop of a partition hears of its workers' sessions."""

from dataclasses import dataclass

from common.wire.session import CacheDelta, Credit, Draining, Heartbeat, StepOutput
from scheduler.worker_registry.session import WorkerSession


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A worker is here."""

    session: WorkerSession


@dataclass(frozen=True, slots=True)
class SessionSaid:
    """A worker said something about its work or itself."""

    session: WorkerSession
    said: StepOutput | Credit | CacheDelta | Heartbeat | Draining


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session is over; whether the worker was lost with it is decided by whoever knows what it ran."""

    session: WorkerSession


SessionEvent = SessionOpened | SessionSaid | SessionEnded
