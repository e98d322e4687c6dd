"""What operators get (``headrace.v1.AdminService``): snapshots of partitions, and dead letters."""

from common.domain import Partition
from common.streams.dead_letters import DeadLetter
from common.wire import public, vocabulary
from common.wire.snapshot import PartitionStatus, WorkerStatus
from headrace.v1 import admin_service_pb2 as pb


def worker_to_pb(status: PartitionStatus, worker: WorkerStatus) -> pb.Worker:
    """A worker of a partition."""
    message = pb.Worker(
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        model=status.partition.model,
        model_revision=worker.model_revision,
        partition=status.partition.index,
        num_running=worker.num_running,
        max_seqs=worker.max_seqs,
        kv_blocks_used=worker.kv_blocks_used,
        kv_blocks=worker.kv_blocks,
        block_size=worker.block_size,
        draining=worker.draining,
        scheduler=status.leader,
    )
    message.last_step_age.FromMilliseconds(worker.last_step_age_ms)
    return message


def queue_to_pb(partition: Partition, status: PartitionStatus | None) -> pb.Queue:
    """A partition's queue; nothing but its name while it has no leader."""
    message = pb.Queue(model=partition.model, partition=partition.index)
    if status is None:
        return message
    message.leader = status.leader
    message.num_running = status.num_running
    message.drain_rate = status.drain_rate
    message.num_workers = len(status.workers)
    message.observed_at.CopyFrom(public.timestamp(status.observed_unix_ms))
    for one in status.classes:
        added = message.classes.add(
            priority=vocabulary.priority_to_pb(one.priority),
            num_waiting=one.num_waiting,
            waiting_tokens=one.waiting_tokens,
        )
        added.oldest_age.FromMilliseconds(one.oldest_age_ms)
    for tenant in status.tenants:
        message.tenants.add(
            tenant=tenant.tenant,
            num_waiting=tenant.num_waiting,
            num_running=tenant.num_running,
        )
    message.tokens_per_s = status.tokens_per_s
    for request in status.oldest:
        shown = message.oldest.add(
            request_id=request.request_id,
            tenant=request.tenant,
            priority=vocabulary.priority_to_pb(request.priority),
            status=vocabulary.status_to_pb(request.status),
            tokens=request.tokens,
            worker_id=request.worker_id,
        )
        shown.age.FromMilliseconds(request.age_ms)
    return message


def dead_letter_to_pb(partition: Partition, letter: DeadLetter) -> pb.DeadLetter:
    """A request that was set aside, with its history."""
    return pb.DeadLetter(
        request_id=letter.request_id,
        model=partition.model,
        tenant=letter.tenant,
        reason=letter.reason,
        died_at=public.timestamp(letter.died_ms),
        attempts=[
            pb.Attempt(
                worker_id=attempt.worker_id,
                dispatched_at=public.timestamp(attempt.dispatched_ms),
                tokens=attempt.tokens,
                outcome=attempt.outcome,
            )
            for attempt in letter.attempts
        ],
    )


def without_time(queue: pb.Queue) -> pb.Queue:
    """The queue less what changes though nothing happens."""
    message = pb.Queue()
    message.CopyFrom(queue)
    message.ClearField("observed_at")
    for one in message.classes:
        one.ClearField("oldest_age")
    for request in message.oldest:
        request.ClearField("age")
    return message
