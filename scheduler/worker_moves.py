"""Sends workers of a led partition on to another one of the model that needs them more (``worker_need`` says which)."""

import asyncio
from typing import TYPE_CHECKING

from common.domain import Partition
from common.errors import Unavailable
from common.lengths import LENGTHS
from common.streams import cards, snapshots
from common.streams.node import Node
from common.wire.records import UndecodableError
from common.wire.snapshot import PartitionStatus, decode_status
from scheduler.led_partition import LedPartition
from scheduler.led_worker import LedWorker
from scheduler.worker_need import SLICE_S, Need, wanted_move
from scheduler.worker_registry.doors import Doors

if TYPE_CHECKING:
    from scheduler.worker_registry.session import WorkerSession

INTERVAL_S = LENGTHS.snapshot_s
_TIMEOUT_S = 1.0


class WorkerMoves:
    """Looks around once for each snapshot, and moves one worker at a time."""

    def __init__(self, node: Node, led: LedPartition, doors: Doors, address: str) -> None:
        """``address`` is this scheduler's, whose ``doors`` may lead to the other partition."""
        self._node = node
        self._led = led
        self._doors = doors
        self._address = address
        self._here_since_s: dict[WorkerSession, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                others = await self._others()
            except Unavailable:
                continue  # who sees nobody's need moves nobody
            self._note_sessions()
            if others and not self._led.is_stopping:
                self._look(others)

    def _look(self, others: list[Need]) -> None:
        workers = [one for one in self._led.workers.values() if not _is_leaving(one)]
        idle = [one for one in workers if not one.running]
        move = wanted_move(self._own(workers), others, has_idle=bool(idle))
        if move is None:
            return
        now_s = self._led.clock()
        going = (
            [one for one in workers if now_s - self._here_since_s[one.session] >= SLICE_S]
            if move.from_work
            else idle
        )
        if not going:
            return
        worker = min(going, key=lambda one: (len(one.running), one.worker_id))
        target = move.target
        self._led.telemetry.log.info(
            "worker sent to another partition",
            worker_id=worker.worker_id,
            target=str(target.partition),
            num_waiting=target.num_waiting,
        )
        if target.address == self._address:
            self._doors.promise(worker.worker_id, target.partition)
        worker.session.close(redirect=target.address)

    def _own(self, workers: list[LedWorker]) -> Need:
        led = self._led
        return Need(led.partition, self._address, len(led.queue), 0.0, len(workers))

    def _note_sessions(self) -> None:
        now_s, known = self._led.clock(), self._here_since_s
        self._here_since_s = {
            one.session: known.get(one.session, now_s) for one in self._led.workers.values()
        }

    async def _others(self) -> list[Need]:
        own = self._led.partition
        count = await cards.partition_count(self._node, own.model, bound_s=_TIMEOUT_S)
        needs = []
        for index in range(count):
            if index == own.index:
                continue
            data = await snapshots.read_snapshot(
                self._node, Partition(own.model, index), bound_s=_TIMEOUT_S
            )
            status = _decoded(data)
            if status is not None and status.leader:
                needs.append(_need(status))
        return needs


def _is_leaving(worker: LedWorker) -> bool:
    return worker.is_draining or worker.session.is_closed


def _decoded(data: bytes | None) -> PartitionStatus | None:
    """A snapshot; one that cannot be read (of a newer version, say) is as good as none."""
    if data is None:
        return None
    try:
        return decode_status(data)
    except UndecodableError:
        return None


def _need(status: PartitionStatus) -> Need:
    return Need(
        status.partition,
        status.leader,
        sum(one.num_waiting for one in status.classes),
        max((one.oldest_age_ms for one in status.classes), default=0) / 1000,
        sum(not one.draining for one in status.workers),
    )
