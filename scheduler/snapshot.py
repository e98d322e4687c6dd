"""The leader's snapshot of its partition, each second: for people, retry advice, and choices that a stale one cannot spoil.

When workers come or go there is one at once: who has just been told that a worker serves expects to see it.
"""

import asyncio
import heapq
from collections.abc import Collection, Iterable

from common import keys
from common.domain import Priority
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.request_status import RequestStatus
from common.streams import snapshots
from common.streams.node import Node
from common.wire.snapshot import (
    BacklogStatus,
    ClassStatus,
    OpenRequest,
    PartitionStatus,
    QueuePosition,
    TenantStatus,
    WorkerStatus,
    encode_status,
)
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.planning.open_order import order_of_service
from scheduler.planning.queue import WaitingQueue
from scheduler.worker_need import Kind

INTERVAL_S = LENGTHS.snapshot_s
NUM_POSITIONS = 100
NUM_OLDEST = 12
_TIMEOUT_S = 1.0
# A rate over about ten seconds: steady enough for advice, quick enough to follow a worker that left.
_RATE_WEIGHT = 0.1
# People watch this one: it follows within three seconds.
_TOKEN_RATE_WEIGHT = 0.3


class Snapshot:
    """Takes and stores snapshots of ``led``."""

    def __init__(self, node: Node, led: LedPartition, address: str) -> None:
        """``address`` is the leader's."""
        self._node = node
        self._led = led
        self._address = address
        self._drain_rate = _Rate(_RATE_WEIGHT, led.num_left_queue)
        self._token_rate = _Rate(_TOKEN_RATE_WEIGHT, led.num_generated)

    async def run(self) -> None:
        """Store one each second, and one whenever workers come or go, until cancelled."""
        while True:
            await self._store()
            due_s = asyncio.get_running_loop().time() + INTERVAL_S
            while await self._is_out_of_date(due_s):
                await self._store()
            self._drain_rate.saw(self._led.num_left_queue)
            self._token_rate.saw(self._led.num_generated)

    async def _store(self) -> None:
        # First: what changes from here on is perhaps not in what is stored.
        self._led.workers_changed.clear()
        try:
            now_ms = await self._node.time_ms(keys.lead(self._led.partition), bound_s=_TIMEOUT_S)
            status = encode_status(self._take(now_ms))
            await snapshots.store_snapshot(
                self._node, self._led.partition, status, bound_s=_TIMEOUT_S
            )
        except Unavailable as error:
            self._led.telemetry.log.debug("no snapshot", reason=error.reason)

    async def _is_out_of_date(self, due_s: float) -> bool:
        """Whether workers have come or gone before the next one is due."""
        try:
            async with asyncio.timeout_at(due_s):
                await self._led.workers_changed.wait()
        except TimeoutError:
            return False
        return True

    def _take(self, now_ms: int) -> PartitionStatus:
        led = self._led
        waiting = [one for one in led.requests.values() if one.status is RequestStatus.QUEUED]
        running = [one for one in led.requests.values() if one.status is RequestStatus.RUNNING]
        return PartitionStatus(
            partition=led.partition,
            leader=self._address,
            classes=_classes(waiting, led.clock()),
            tenants=_tenants(waiting, running),
            workers=[_worker(worker) for worker in led.workers.values()],
            num_running=len(running),
            drain_rate=self._drain_rate.per_s,
            observed_unix_ms=now_ms,
            positions=self._positions(),
            tokens_per_s=self._token_rate.per_s,
            oldest=_oldest([*waiting, *running], led.clock()),
            backlogs=backlogs(led.queue, led.clock()),
        )

    def _positions(self) -> list[QueuePosition]:
        led = self._led
        views = [worker.view(led.queue.lengths, led.clock()) for worker in led.workers.values()]
        serving = [view for view in views if not view.draining]
        found: list[QueuePosition] = []
        for position, request in enumerate(order_of_service(led.queue, NUM_POSITIONS)):
            fits = [view for view in serving if view.serves(request.lane_key)]
            if not serving:
                reason = "no worker"
            elif not fits:
                wanted = "with equal numerics" if request.is_started else "of its revision"
                reason = f"no worker {wanted}"
            elif request.alone:
                reason = "quarantine: waits for a worker of its own"
            else:
                wait_s = led.queue.pace.wait_s(position)
                estimate = "" if wait_s is None else f", est. {wait_s:.1f} s"
                held = led.queue.prefixes.longest(request.prefix)
                cached = request.known_tokens - request.to_compute(held)
                known = f", {cached} tokens cached" if cached else ""
                reason = (
                    f"waiting: class {request.priority.name}, position {position}{estimate}{known}"
                )
            found.append(QueuePosition(request.request_id, position, reason))
        return found


def backlogs(queue: WaitingQueue, now_s: float) -> list[BacklogStatus]:
    """What waits, by what it needs of a worker."""
    return [
        BacklogStatus(
            key.fingerprint or "",
            key.model_revision,
            len(lane),
            max(0, round((now_s - (lane.oldest_arrival_s or now_s)) * 1000)),
        )
        for key, lane in queue.lanes()
    ]


def num_waiting_for(queue: WaitingQueue, kinds: Collection[Kind], now_s: float) -> int:
    """How many requests wait that a worker of one of the ``kinds`` may run."""
    return sum(
        one.num_waiting
        for one in backlogs(queue, now_s)
        if any(kind.serves(one) for kind in kinds)
    )


class _Rate:
    """How fast a count grows, smoothed; seen each interval."""

    def __init__(self, weight: float, count: int) -> None:
        self._weight = weight
        self._count = count
        self.per_s = 0.0

    def saw(self, count: int) -> None:
        grown, self._count = count - self._count, count
        self.per_s += self._weight * (grown / INTERVAL_S - self.per_s)


def _oldest(requests: Iterable[LedRequest], now_s: float) -> list[OpenRequest]:
    found = heapq.nsmallest(NUM_OLDEST, requests, key=lambda request: request.arrival_s)
    return [
        OpenRequest(
            request_id=request.key,
            tenant=request.header.tenant,
            priority=request.priority,
            status=request.status,
            age_ms=max(0, round((now_s - request.arrival_s) * 1000)),
            tokens=request.next_seq,
            worker_id=request.worker_id,
        )
        for request in found
    ]


def _classes(waiting: list[LedRequest], now_s: float) -> list[ClassStatus]:
    by_class: dict[Priority, list[LedRequest]] = {priority: [] for priority in Priority}
    for request in waiting:
        by_class[request.header.priority].append(request)
    return [
        ClassStatus(
            priority=priority,
            num_waiting=len(requests),
            waiting_tokens=sum(request.header.prompt_tokens for request in requests),
            oldest_age_ms=max(
                (round((now_s - request.arrival_s) * 1000) for request in requests), default=0
            ),
        )
        for priority, requests in by_class.items()
    ]


def _tenants(waiting: list[LedRequest], running: list[LedRequest]) -> list[TenantStatus]:
    counts: dict[str, list[int]] = {}
    for position, requests in enumerate((waiting, running)):
        for request in requests:
            counts.setdefault(request.header.tenant, [0, 0])[position] += 1
    return [TenantStatus(tenant, *count) for tenant, count in counts.items()]


def _worker(worker: LedWorker) -> WorkerStatus:
    hello = worker.session.hello
    return WorkerStatus(
        worker_id=worker.worker_id,
        incarnation=worker.session.incarnation,
        model_revision=hello.model_revision,
        num_running=len(worker.running),
        max_seqs=hello.max_seqs,
        kv_blocks_used=max(0, hello.kv_blocks - worker.credit.free_blocks),
        kv_blocks=hello.kv_blocks,
        block_size=hello.block_size,
        draining=worker.is_draining,
        last_step_age_ms=worker.last_step_age_ms,
        fingerprint=hello.fingerprint,
    )
