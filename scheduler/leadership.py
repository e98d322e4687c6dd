"""Everything that runs while a partition is led, begun and ended together.

intake ─┐                          ┌─▶ record writer ─▶ records
workers ┼─▶ mailbox ─▶ the loop ───┼─▶ log writers   ─▶ reply logs
beats  ─┘        ▲                 └─▶ acks, workers
                 └── confirmations of all of these ◀──┘
"""

import asyncio
from dataclasses import dataclass

from common.clock import monotonic_s
from common.domain import Clock, Partition
from common.lengths import LENGTHS
from common.logs import Log
from common.metrics import Metrics
from common.streams import inbox, wake
from common.streams.leases import LeaderLease
from common.streams.node import Node
from common.tracing import Tracing
from scheduler.acks import Acks
from scheduler.card_watch import CardWatch
from scheduler.drains import Drains
from scheduler.gateway_watch import GatewayWatch
from scheduler.gauges import Figures, PartitionGauges, count_requests
from scheduler.heartbeat import Heartbeat
from scheduler.intake import Intake
from scheduler.lease import LEASE_S, RENEW_INTERVAL_S, HeldLease
from scheduler.led_partition import LedPartition
from scheduler.log_writers import LogWriters
from scheduler.loop import PartitionLoop
from scheduler.mailbox import Mailbox
from scheduler.messages import Message, Purpose, WritesAnswered
from scheduler.owned_tasks import OwnedTasks
from scheduler.planning.queue import WaitingQueue
from scheduler.record_writer import RecordWriter
from scheduler.recount import Recount
from scheduler.rules import planning_settings
from scheduler.settings import SchedulerSettings
from scheduler.settlements import Settlements
from scheduler.snapshot import Snapshot, num_waiting_for
from scheduler.takeover import TakeoverReader
from scheduler.telemetry import PartitionTelemetry
from scheduler.tenant_weights import weights_of
from scheduler.weight_watch import WeightWatch
from scheduler.worker_moves import WorkerMoves
from scheduler.worker_need import Kind
from scheduler.worker_registry.doors import Door, Doors
from scheduler.worker_registry.session import WorkerSession

# For what is in flight at a clean stop; what does not make it is taken over like after a crash.
FLUSH_TIMEOUT_S = LENGTHS.leader_flush_s


@dataclass(frozen=True, slots=True)
class Services:
    """What all partitions of a process share."""

    node: Node
    identity: LeaderLease
    settings: SchedulerSettings
    doors: Doors
    metrics: Metrics
    tracing: Tracing
    gauges: PartitionGauges
    log: Log
    clock: Clock = monotonic_s


class Leadership:
    """One partition, led from ``run``'s beginning to its end."""

    def __init__(
        self, services: Services, partition: Partition, lease: HeldLease, leaving: asyncio.Event
    ) -> None:
        """Nothing runs yet. It leads until ``leaving`` is set."""
        self._leaving = leaving
        self._services = services
        self._partition = partition
        self._lease = lease
        node, settings = services.node, services.settings
        mailbox: Mailbox[Message] = Mailbox()
        self._mailbox, post = mailbox, mailbox.post
        telemetry = PartitionTelemetry(
            partition, services.metrics, services.tracing, services.log, settings.metric_tenants
        )
        self._reader = TakeoverReader(node, post, telemetry.log)
        self._logs = LogWriters(
            node,
            lease,
            post,
            max_backlog=settings.max_log_backlog,
            on_append=telemetry.appended,
        )
        self._records: RecordWriter[Purpose] = RecordWriter(
            node, lease, lambda answers: post(WritesAnswered(answers))
        )
        self._acks = Acks(node, partition, lease)
        self._settlements = Settlements(node, lease, self._acks.add)
        weights = dict(weights_of(settings.tenant_weights))
        self._weights = WeightWatch(node, weights)
        self._led = LedPartition(
            partition=partition,
            owner=services.identity.scheduler_id,
            settings=settings,
            clock=services.clock,
            telemetry=telemetry,
            queue=WaitingQueue(planning_settings(settings, weights)),
            logs=self._logs,
            records=self._records,
            acks=self._acks,
            settlements=self._settlements,
            recover=self._reader.recover,
            led_since_s=services.clock(),
        )
        self._watch = GatewayWatch(node, self._led, grace_s=settings.orphan_grace_s)
        self._drains = Drains(node, partition, post)
        self._loop = PartitionLoop(self._led, mailbox, self._drains)
        self._door = Door(
            partition,
            post,
            num_workers=lambda: len(self._led.workers),
            backlog=self._backlog,
            holder=self._holder,
        )

    async def run(self) -> None:
        """Lead until told to leave; the lease's end cancels this."""
        services, led = self._services, self._led
        await inbox.create_groups(services.node, self._partition)
        # Before anything is owned: what is flagged later has a wake message behind this position.
        after = await wake.last_wake_id(services.node, self._partition)
        led.telemetry.leading()
        services.gauges.add(self._partition, self._figures)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = OwnedTasks(group)
                self._begin(tasks, after)
                services.doors.open(self._door)
                await self._leaving.wait()
                await self._flush()
                tasks.end()
        except Exception as error:
            # Said at once: whoever else has to end first may take a while.
            led.telemetry.log.error("leadership failed", exc_info=error)
            raise
        finally:
            services.doors.shut(self._door)
            services.gauges.remove(self._partition)
            for worker in led.workers.values():
                worker.session.close(redirect="")
            led.telemetry.log.info("not leading any more")

    def _begin(self, tasks: OwnedTasks, after: str) -> None:
        services, led, post = self._services, self._led, self._mailbox.post
        node, identity = services.node, services.identity
        self._logs.begin(tasks)
        self._reader.begin(tasks)
        intake = Intake(node, self._partition, identity.scheduler_id, post)
        heartbeat = Heartbeat(node, led, post)
        for work in (
            self._loop.run(),
            self._records.run(),
            self._settlements.run(),
            self._acks.run(),
            self._drains.run(),
            self._weights.run(),
            intake.run(),
            intake.sweep(),
            heartbeat.run(),
            heartbeat.listen(after),
            self._watch.run(),
            CardWatch(node, led).run(),
            self._mind_door(),
            WorkerMoves(node, led, services.doors, identity.address).run(),
            Snapshot(node, led, identity.address).run(),
            Recount(node, self._partition, led.telemetry.log).run(),
        ):
            tasks.start(work)

    async def _mind_door(self) -> None:
        """Keep no workers while somebody else may lead already: they would be missing there.

        What they ran goes on elsewhere, or here once the lease is held again; nothing of it is forgotten.
        """
        doors, is_open = self._services.doors, True
        while True:
            await asyncio.sleep(RENEW_INTERVAL_S)
            if is_open and self._lease.lapsed_s > LEASE_S:
                self._led.telemetry.log.warning("lease not renewed: workers are sent away")
                doors.shut(self._door)
                for worker in self._led.workers.values():
                    worker.session.close(redirect="")
                is_open = False
            elif not is_open and self._lease.holds:
                doors.open(self._door)
                is_open = True

    async def _flush(self) -> None:
        """Let what is in flight be written: the next leader then finds every request waiting."""
        self._services.doors.shut(self._door)
        self._loop.stop()
        self._mailbox.wake()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._loop.is_quiet.wait()
        except TimeoutError:
            self._led.telemetry.log.warning("stopping with writes in flight")

    def _backlog(self, kind: Kind) -> int:
        return num_waiting_for(self._led.queue, [kind], self._led.clock())

    def _holder(self, worker_id: str) -> WorkerSession | None:
        worker = self._led.workers.get(worker_id)
        return None if worker is None else worker.session

    def _figures(self) -> Figures | None:
        """For gauges, from the scraping thread; nothing while somebody else may lead."""
        led = self._led
        if not self._lease.holds:
            return None
        # A copy in one step: the loop's thread changes the mapping meanwhile.
        return count_requests(
            list(led.requests.values()),
            led.clock(),
            led.telemetry.tenant_of,
            num_workers=len(led.workers),
            num_orphans=self._watch.num_orphans,
        )
