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
from scheduler.snapshot import num_waiting_for
from scheduler.worker_need import SLICE_S, Fleet, Kind, Need, fleets_of, wanted_move
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

    def _look(self, others: list[PartitionStatus]) -> None:
        workers = [one for one in self._led.workers.values() if not _is_leaving(one)]
        for fleet in fleets_of(one.kind for one in workers):
            members = [one for one in workers if fleet.has(one.kind)]
            if self._look_at(fleet, members, [need_of(fleet, one) for one in others]):
                return

    def _look_at(self, fleet: Fleet, workers: list[LedWorker], others: list[Need]) -> bool:
        """Whether one of a fleet's workers is sent away."""
        idle = [one for one in workers if not one.running]
        move = wanted_move(
            self._own(workers), others, has_idle=bool(idle), spreads=not fleet.fingerprint
        )
        if move is None:
            return False
        now_s = self._led.clock()
        going = (
            [one for one in workers if now_s - self._here_since_s[one.session] >= SLICE_S]
            if move.from_work
            else idle
        )
        if not going:
            return False
        self._send(min(going, key=lambda one: (len(one.running), one.worker_id)), move.target)
        return True

    def _send(self, worker: LedWorker, target: Need) -> None:
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
        led, kinds = self._led, {one.kind for one in workers}
        num_waiting = num_waiting_for(led.queue, kinds, led.clock())
        return Need(led.partition, self._address, num_waiting, 0.0, len(workers))

    def _note_sessions(self) -> None:
        now_s, known = self._led.clock(), self._here_since_s
        self._here_since_s = {
            one.session: known.get(one.session, now_s) for one in self._led.workers.values()
        }

    async def _others(self) -> list[PartitionStatus]:
        own = self._led.partition
        count = await cards.partition_count(self._node, own.model, bound_s=_TIMEOUT_S)
        found = []
        for index in range(count):
            if index == own.index:
                continue
            data = await snapshots.read_snapshot(
                self._node, Partition(own.model, index), bound_s=_TIMEOUT_S
            )
            status = _decoded(data)
            if status is not None and status.leader:
                found.append(status)
        return found


def need_of(fleet: Fleet, status: PartitionStatus) -> Need:
    """How much a partition needs workers of a fleet, as its snapshot tells."""
    kinds = (
        Kind(one.fingerprint, one.model_revision) for one in status.workers if not one.draining
    )
    return fleet.need(status.partition, status.leader, status.backlogs, kinds)


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
