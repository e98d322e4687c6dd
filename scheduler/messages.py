"""What the loop of a led partition is told, and why it asked for a write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.domain import RequestId
from common.records import Failure, Progress
from common.streams.inbox import InboxEntry
from common.streams.ownership import Answer
from common.streams.wake import DrainOrder
from common.wire.orders import OpenedBody
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.log_writer import Appended, TailLost
from scheduler.record_writer import Answered
from scheduler.worker_registry.events import SessionEvent

# Why a record was written.


@dataclass(frozen=True, slots=True)
class Owning:
    """To take an inbox entry."""

    request_id: RequestId
    entry: InboxEntry


@dataclass(slots=True, eq=False)
class Batch:
    """The picks of one moment for one worker, until the last of them is taken."""

    id: str
    worker: LedWorker
    reason: str
    picked_s: float
    num_missing: int
    taken: list[tuple[LedRequest, OpenedBody]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Taking:
    """To dispatch a request as part of a batch."""

    request: LedRequest
    batch: Batch


@dataclass(frozen=True, slots=True)
class Requeuing:
    """To put a request back."""

    request: LedRequest


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """To store what was logged up to a position."""

    request: LedRequest
    log_id: str


@dataclass(frozen=True, slots=True)
class Finishing:
    """To write a terminal record."""

    request: LedRequest


Purpose = Owning | Taking | Requeuing | Checkpointing | Finishing

# What the loop is told.


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """Inbox entries, some of them perhaps known; ``are_new``: nobody has read them before."""

    entries: Sequence[InboxEntry]
    are_new: bool = False


@dataclass(frozen=True, slots=True)
class WritesAnswered:
    """Answers to writes, in the order in which they were asked for."""

    answers: Sequence[Answered[Purpose]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """A request's log was read up to its fence: what counts, or why it cannot be known."""

    request: LedRequest
    progress: Progress
    seed: int = 0
    num_choices: int = 1
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Beaten:
    """What a heartbeat found, by request and epoch."""

    found: Mapping[tuple[str, int], Answer]


@dataclass(frozen=True, slots=True)
class DrainOrdered:
    """A drain order stands."""

    order: DrainOrder


Message = (
    EntriesRead
    | WritesAnswered
    | Appended
    | TailLost
    | Recovered
    | Beaten
    | DrainOrdered
    | SessionEvent
)
