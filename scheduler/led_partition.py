"""The state of a led partition, and the writers through which it takes effect. One task owns it: the loop's."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from common.domain import Clock, FinishReason, Partition, Priority, RequestId
from common.records import LogRecord
from common.streams import reply_log
from common.streams.inbox import InboxEntry
from common.streams.ownership import own_step
from common.wire import orders
from scheduler.acks import Acks
from scheduler.alarms import Alarms
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.log_writers import LogWriters
from scheduler.messages import Owning, Purpose
from scheduler.node_time import NodeTime
from scheduler.planning.queue import WaitingQueue
from scheduler.record_writer import RecordWriter
from scheduler.settings import SchedulerSettings
from scheduler.settlements import EndedEntry, Settlements
from scheduler.telemetry import PartitionTelemetry


@dataclass(slots=True, eq=False)
class LedPartition:
    """Everything that is known of a partition while it is led here.

    ``entries`` are the inbox entries that are being taken or whose requests are in ``requests``. ``parked`` wait for
    their log to catch up. ``recovering`` have a past that is being read. ``ended`` have their last finish in the log and
    await their terminal record.
    """

    partition: Partition
    owner: str
    settings: SchedulerSettings
    clock: Clock
    telemetry: PartitionTelemetry
    queue: WaitingQueue
    logs: LogWriters
    records: RecordWriter[Purpose]
    acks: Acks
    settlements: Settlements
    recover: Callable[[str, str, list[LedRequest]], None]
    alarms: Alarms = field(default_factory=Alarms)
    node_time: NodeTime = field(default_factory=NodeTime)
    requests: dict[str, LedRequest] = field(default_factory=dict)
    entries: set[tuple[Priority, str]] = field(default_factory=set)
    workers: dict[str, LedWorker] = field(default_factory=dict)
    parked: dict[str, LedRequest] = field(default_factory=dict)
    recovering: set[str] = field(default_factory=set)
    ended: list[LedRequest] = field(default_factory=list)
    acks_after_unmark: dict[str, EndedEntry] = field(default_factory=dict)
    num_open_by_log: Counter[str] = field(default_factory=Counter)
    workers_changed: asyncio.Event = field(default_factory=asyncio.Event)
    num_left_queue: int = 0
    num_generated: int = 0
    wants_plan: bool = True
    is_stopping: bool = False
    led_since_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether every write that was asked for is made."""
        return (
            self.logs.is_idle
            and self.records.is_idle
            and self.settlements.is_idle
            and self.acks.is_idle
        )

    @property
    def is_taking_in(self) -> bool:
        """Whether some request that has come is not yet where it can wait."""
        return bool(self.recovering) or len(self.entries) > len(self.requests)

    def own(self, request_id: RequestId, entry: InboxEntry) -> None:
        """Ask for an entry, which nobody else here is asking for."""
        self.entries.add((entry.priority, entry.entry_id))
        step = own_step(self.owner, request_id, entry.priority, entry.entry_id)
        self.records.ask(step, Owning(request_id, entry))

    def add(self, request: LedRequest) -> None:
        """A request is ours from here on."""
        assert request.key not in self.requests, request.key
        self.requests[request.key] = request
        self.entries.add((request.header.priority, request.entry_id))
        self.num_open_by_log[request.log] += 1

    def enqueue(self, request: LedRequest) -> None:
        """Let it wait for a worker."""
        self.queue.add(request.waiting())
        self.wants_plan = True

    def dequeue(self, request: LedRequest) -> None:
        """It waits no more, if it did."""
        was_parked = self.parked.pop(request.key, None) is not None
        if self.queue.remove(request.key) is not None or was_parked:
            self.num_left_queue += 1

    def start(self, request: LedRequest) -> None:
        """It goes to a worker: its tenant is charged for the prompt, unless it was before."""
        started = self.queue.start(request.key)
        assert started is not None, request.key
        request.is_charged = True
        self.num_left_queue += 1

    def recharge(self, request: LedRequest) -> None:
        """Count what a former leader had served of the request: a new one knows no other past of its tenant."""
        if request.is_charged or not request.has_prompt:
            return
        request.is_charged = True
        self.queue.charge(
            request.priority,
            request.header.tenant,
            prompt_tokens=request.header.prompt_tokens,
            generated_tokens=request.progress.next_seq,
        )

    def write(self, request: LedRequest, records: list[LogRecord]) -> None:
        """Log facts about a request; its first ones make the log keep what follows its start."""
        if not records:
            return
        if not request.is_logged:
            request.is_logged = True
            self.logs.mark(request.log, request.key, reply_log.id_ms(request.keep_from))
        self.logs.add(request.log, records)

    def release_worker(self, request: LedRequest) -> LedWorker | None:
        """Take the request off its worker; the worker, if it is still here."""
        worker = self.workers.get(request.worker_id)
        request.worker_id = ""
        if worker is None or request.key not in worker.running:
            return None
        worker.remove(request.key)
        self.wants_plan = True
        return worker

    def let_go(self, log: str, request_id: str, entry: EndedEntry) -> None:
        """A terminal record exists: the log need not keep anything for the request, then its entry may go.

        In this order, because nobody would find a mark whose entry has gone.
        """
        self.acks_after_unmark[request_id] = entry
        self.logs.unmark(log, request_id)

    def drop(self, request: LedRequest) -> None:
        """It is somebody else's: stop it here and write nothing more about it."""
        attempt = request.attempt
        worker = self.release_worker(request)
        if worker is not None:
            stopped = [(request.key, request.epoch, attempt)]
            worker.session.send(orders.cancel(stopped, FinishReason.CANCELLED))
        self.forget(request)

    def forget(self, request: LedRequest) -> None:
        """It is not ours any more, or it is over."""
        if self.requests.pop(request.key, None) is None:
            return
        self.dequeue(request)
        self.release_worker(request)
        self.recovering.discard(request.key)
        self.entries.discard((request.header.priority, request.entry_id))
        self.num_open_by_log[request.log] -= 1
        if not self.num_open_by_log[request.log]:
            del self.num_open_by_log[request.log]
