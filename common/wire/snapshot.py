"""A leader's snapshot of its partition, as stored for gateways, ``status`` and ``top``."""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from common.domain import Partition, Priority
from common.request_status import RequestStatus
from common.wire import vocabulary
from common.wire.records import UndecodableError
from headrace.internal.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A connected worker."""

    worker_id: str
    incarnation: str
    model_revision: str
    num_running: int
    max_seqs: int
    kv_blocks_used: int
    kv_blocks: int
    block_size: int
    draining: bool
    last_step_age_ms: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class BacklogStatus:
    """Waiting requests that need the same of a worker; ``fingerprint`` is empty for those that have not started."""

    fingerprint: str
    model_revision: str
    num_waiting: int
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class ClassStatus:
    """Waiting requests of one class."""

    priority: Priority
    num_waiting: int
    waiting_tokens: int
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """One tenant's requests."""

    tenant: str
    num_waiting: int
    num_running: int


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a waiting request stands, and why it does not run."""

    request_id: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that is open for long."""

    request_id: str
    tenant: str
    priority: Priority
    status: RequestStatus
    age_ms: int
    tokens: int
    worker_id: str


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The snapshot."""

    partition: Partition
    leader: str
    classes: Sequence[ClassStatus]
    tenants: Sequence[TenantStatus]
    workers: Sequence[WorkerStatus]
    num_running: int
    drain_rate: float
    observed_unix_ms: int
    positions: Sequence[QueuePosition]
    tokens_per_s: float = 0.0
    oldest: Sequence[OpenRequest] = ()
    backlogs: Sequence[BacklogStatus] = ()

    @property
    def num_waiting(self) -> int:
        """Requests of all classes that wait."""
        return sum(one.num_waiting for one in self.classes)

    def serves(self, revision: str) -> bool:
        """Whether a worker that takes new requests has this revision."""
        return any(
            worker.model_revision == revision and not worker.draining for worker in self.workers
        )


def encode_status(status: PartitionStatus) -> bytes:
    """As stored."""
    return pb.PartitionStatus(
        model=status.partition.model,
        partition=status.partition.index,
        leader=status.leader,
        classes=[
            pb.ClassStatus(
                priority=vocabulary.priority_to_pb(one.priority),
                num_waiting=one.num_waiting,
                waiting_tokens=one.waiting_tokens,
                oldest_age_ms=one.oldest_age_ms,
            )
            for one in status.classes
        ],
        tenants=[
            pb.TenantStatus(
                tenant=one.tenant, num_waiting=one.num_waiting, num_running=one.num_running
            )
            for one in status.tenants
        ],
        workers=[_worker_to_pb(one) for one in status.workers],
        num_running=status.num_running,
        drain_rate=status.drain_rate,
        observed_unix_ms=status.observed_unix_ms,
        positions=[
            pb.QueuePosition(request_id=one.request_id, position=one.position, reason=one.reason)
            for one in status.positions
        ],
        tokens_per_s=status.tokens_per_s,
        oldest=[_open_to_pb(one) for one in status.oldest],
        backlogs=[
            pb.BacklogStatus(
                fingerprint=one.fingerprint,
                model_revision=one.model_revision,
                num_waiting=one.num_waiting,
                oldest_age_ms=one.oldest_age_ms,
            )
            for one in status.backlogs
        ],
    ).SerializeToString()


def decode_status(data: bytes) -> PartitionStatus:
    """The snapshot that ``data`` holds.

    Raises:
        UndecodableError: the bytes are no snapshot.
    """
    try:
        return _status_from_pb(pb.PartitionStatus.FromString(data))
    except (DecodeError, KeyError) as error:
        raise UndecodableError(f"snapshot: {error}") from error


def _status_from_pb(message: pb.PartitionStatus) -> PartitionStatus:
    return PartitionStatus(
        partition=Partition(message.model, message.partition),
        leader=message.leader,
        classes=[
            ClassStatus(
                vocabulary.priority_from_pb(one.priority),
                one.num_waiting,
                one.waiting_tokens,
                one.oldest_age_ms,
            )
            for one in message.classes
        ],
        tenants=[
            TenantStatus(one.tenant, one.num_waiting, one.num_running) for one in message.tenants
        ],
        workers=[_worker_from_pb(one) for one in message.workers],
        num_running=message.num_running,
        drain_rate=message.drain_rate,
        observed_unix_ms=message.observed_unix_ms,
        positions=[
            QueuePosition(one.request_id, one.position, one.reason) for one in message.positions
        ],
        tokens_per_s=message.tokens_per_s,
        oldest=[_open_from_pb(one) for one in message.oldest],
        backlogs=[
            BacklogStatus(one.fingerprint, one.model_revision, one.num_waiting, one.oldest_age_ms)
            for one in message.backlogs
        ],
    )


def _open_to_pb(one: OpenRequest) -> pb.OpenRequest:
    return pb.OpenRequest(
        request_id=one.request_id,
        tenant=one.tenant,
        priority=vocabulary.priority_to_pb(one.priority),
        status=vocabulary.status_to_pb(one.status),
        age_ms=one.age_ms,
        tokens=one.tokens,
        worker_id=one.worker_id,
    )


def _open_from_pb(message: pb.OpenRequest) -> OpenRequest:
    return OpenRequest(
        message.request_id,
        message.tenant,
        vocabulary.priority_from_pb(message.priority),
        vocabulary.status_from_pb(message.status),
        message.age_ms,
        message.tokens,
        message.worker_id,
    )


def _worker_to_pb(status: WorkerStatus) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id=status.worker_id,
        incarnation=status.incarnation,
        model_revision=status.model_revision,
        num_running=status.num_running,
        max_seqs=status.max_seqs,
        kv_blocks_used=status.kv_blocks_used,
        kv_blocks=status.kv_blocks,
        block_size=status.block_size,
        draining=status.draining,
        last_step_age_ms=status.last_step_age_ms,
        fingerprint=status.fingerprint,
    )


def _worker_from_pb(message: pb.WorkerStatus) -> WorkerStatus:
    return WorkerStatus(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        model_revision=message.model_revision,
        num_running=message.num_running,
        max_seqs=message.max_seqs,
        kv_blocks_used=message.kv_blocks_used,
        kv_blocks=message.kv_blocks,
        block_size=message.block_size,
        draining=message.draining,
        last_step_age_ms=message.last_step_age_ms,
        fingerprint=message.fingerprint,
    )
