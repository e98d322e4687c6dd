"""Puts a scheduler together and runs it until it is asked to stop."""

import asyncio

import grpc.aio

from common.clock import monotonic_s
from common.domain import Partition, uuid7_hex
from common.grpc_options import internal_server_options
from common.health import HealthService
from common.readiness import Readiness
from common.server import CannotServe, Runtime
from common.streams.leases import LeaderLease
from common.streams.node import Node
from headrace.internal.v1 import worker_service_pb2
from headrace.internal.v1.worker_service_pb2_grpc import add_WorkerServiceServicer_to_server
from scheduler.balance import Balance
from scheduler.campaign import Campaign
from scheduler.campaigns import Campaigns
from scheduler.gauges import PartitionGauges
from scheduler.growth import GrowthRule
from scheduler.leadership import Leadership, Services
from scheduler.lease import HeldLease
from scheduler.partition_counts import PartitionCounts
from scheduler.settings import SchedulerSettings
from scheduler.telemetry import begin_counters
from scheduler.worker_registry.doors import Doors
from scheduler.worker_registry.worker_service import WorkerService

# Sessions are told to go elsewhere before this begins; it is for those that do not listen.
_SERVER_GRACE_S = 1.0
_LOOK_INTERVAL_S = 1.0
WORKERS = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name


async def serve(settings: SchedulerSettings, runtime: Runtime) -> None:
    """Serve until ``runtime.stopping``."""
    server = grpc.aio.server(options=internal_server_options())
    tls = settings.server_tls(runtime.log)
    place = f"{settings.grpc_host}:{settings.grpc_port}"
    try:
        if tls is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, tls.grpc_credentials())
    except RuntimeError as error:
        raise CannotServe(
            f"--grpc-port: cannot bind {settings.grpc_host}:{settings.grpc_port}"
        ) from error
    node = Node(settings.redis_url, settings.vault())
    address = settings.advertise_address or f"{settings.grpc_host}:{port}"
    identity = LeaderLease(f"{runtime.instance}-{uuid7_hex(0)[-8:]}", address)
    scheduler = Scheduler(settings, runtime, node, identity)
    health = HealthService(runtime.readiness, [WORKERS])
    try:
        scheduler.add_to(server)
        await health.add_to(server)
        await server.start()
        await _check_redis(node, runtime)
        async with asyncio.TaskGroup() as tasks:
            looking = [
                tasks.create_task(health.follow()),
                tasks.create_task(_state_redis(node, runtime.readiness)),
            ]
            runtime.readiness.set("serving", holds=True)
            runtime.announce({"grpc": f"{settings.grpc_host}:{port}"})
            await scheduler.campaigns.run()
            await health.stop()
            for task in looking:
                task.cancel()
    finally:
        await server.stop(_SERVER_GRACE_S)
        await node.close()


class Scheduler:
    """The parts of one scheduler process."""

    def __init__(
        self, settings: SchedulerSettings, runtime: Runtime, node: Node, identity: LeaderLease
    ) -> None:
        """Nothing runs yet."""
        self._identity = identity
        runtime.metrics.redis_errors.watch(lambda: [(node.num_errors, {})])
        self._node = node
        self._heartbeat_ms = settings.worker_heartbeat_ms
        self.doors = Doors()
        self.services = Services(
            node=node,
            identity=identity,
            settings=settings,
            doors=self.doors,
            metrics=runtime.metrics,
            tracing=runtime.tracing,
            gauges=PartitionGauges(runtime.metrics, monotonic_s),
            log=runtime.log.bind(scheduler_id=identity.scheduler_id),
            clock=monotonic_s,
        )
        self._balance = Balance()
        self._stopping = runtime.stopping
        self.campaigns = Campaigns(
            node,
            self._campaign,
            scheduler_id=identity.scheduler_id,
            balance=self._balance,
            counts=self._partition_counts(settings),
            stopping=runtime.stopping,
            log=self.services.log,
        )

    def _partition_counts(self, settings: SchedulerSettings) -> PartitionCounts:
        return PartitionCounts(
            self._node,
            self._balance,
            least=settings.partitions,
            rule=GrowthRule(
                settings.max_partitions, settings.growth_cpu_share, settings.growth_after_s
            ),
            num_workers=self.doors.num_workers,
            clock=self.services.clock,
            log=self.services.log,
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let workers dial in."""
        service = WorkerService(
            self._node,
            self.doors,
            self.campaigns.announce,
            scheduler_id=self._identity.scheduler_id,
            heartbeat_ms=self._heartbeat_ms,
        )
        add_WorkerServiceServicer_to_server(service, server)

    def _campaign(self, partition: Partition) -> Campaign:
        begin_counters(self.services.metrics, partition.model)
        return Campaign(
            self._node,
            partition,
            self._identity,
            self._lead,
            balance=self._balance,
            stopping=self._stopping,
            clock=self.services.clock,
            log=self.services.log,
        )

    async def _lead(self, partition: Partition, lease: HeldLease, leaving: asyncio.Event) -> None:
        await Leadership(self.services, partition, lease, leaving).run()


async def _state_redis(node: Node, readiness: Readiness) -> None:
    """Ready while Redis answers: without it nothing moves forward."""
    while True:
        healthy = await node.is_healthy()
        readiness.set("redis", holds=healthy, detail="" if healthy else node.last_error or "")
        await asyncio.sleep(_LOOK_INTERVAL_S)


async def _check_redis(node: Node, runtime: Runtime) -> None:
    """An evicting Redis would lose accepted requests; say so loudly, but a managed one may not tell."""
    if not await node.is_healthy():
        runtime.log.warning("redis does not answer yet", error=node.last_error)
        return
    policy = await node.eviction_policy()
    if policy not in (None, "noeviction"):
        runtime.log.error(
            "redis may evict accepted requests: set maxmemory-policy noeviction", policy=policy
        )
