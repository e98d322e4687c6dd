"""``headrace.v1.AdminService``: what operators see and order, from the leaders' snapshots."""

from collections.abc import Sequence

from common.domain import Partition
from common.errors import FieldViolation, InvalidRequest, NotFound
from common.logs import set_log_level
from common.service_settings import LogLevel
from common.streams.node import Node
from common.streams.wake import DrainOrder, order_drain
from common.tracing import extract_context
from common.wire import admin
from common.wire.aliases import alias_of, alias_to_pb
from common.wire.snapshot import PartitionStatus, WorkerStatus
from gateway.aliases import Aliases
from gateway.caller import Context, metadata_of
from gateway.catalogue import Catalogue
from gateway.dead_letters import DeadLetters
from gateway.forgetting import Forgetting
from gateway.patience import patient
from gateway.queue_views import QueueViews, partitions_of
from gateway.tenants import Tenants
from gateway.validation.fields import check_model
from gateway.validation.findings import Findings
from headrace.v1 import admin_service_pb2 as pb
from headrace.v1 import admin_service_pb2_grpc as rpc

_BOUND_S = 2.0
_DEFAULT_GRACE_MS = 60_000


class AdminService(rpc.AdminServiceServicer):
    """The servicer; errors leave through the boundary around it."""

    def __init__(
        self,
        node: Node,
        catalogue: Catalogue,
        views: QueueViews,
        dead_letters: DeadLetters,
        tenants: Tenants,
        forgetting: Forgetting,
        aliases: Aliases,
    ) -> None:
        """Reads snapshots through ``views``, orders through ``node``."""
        self._dead_letters = dead_letters
        self._tenants = tenants
        self._forgetting = forgetting
        self._aliases = aliases
        self._node = node
        self._catalogue = catalogue
        self._views = views

    async def ListWorkers(
        self, request: pb.ListWorkersRequest, context: Context
    ) -> pb.ListWorkersResponse:
        """All workers, or those of a model."""
        statuses = await self._statuses(request.model)
        workers = [
            admin.worker_to_pb(status, worker) for status in statuses for worker in status.workers
        ]
        return pb.ListWorkersResponse(workers=sorted(workers, key=lambda worker: worker.worker_id))

    async def DrainWorker(
        self, request: pb.DrainWorkerRequest, context: Context
    ) -> pb.DrainWorkerResponse:
        """State first, then a message that hurries the leader."""
        grace_ms = _DEFAULT_GRACE_MS
        if request.HasField("grace"):
            grace_ms = request.grace.seconds * 1000 + request.grace.nanos // 1_000_000
        if grace_ms < 0:
            raise InvalidRequest([FieldViolation("grace", "must not be negative")])
        status, worker = await self._find(request.worker_id)
        order = DrainOrder(worker.worker_id, worker.incarnation, grace_ms)
        await order_drain(self._node, status.partition, order, bound_s=_BOUND_S)
        return pb.DrainWorkerResponse(worker=admin.worker_to_pb(status, worker))

    async def GetQueue(self, request: pb.GetQueueRequest, context: Context) -> pb.GetQueueResponse:
        """The queues of a model, or of all, now."""
        return pb.GetQueueResponse(queues=await self._queues(request.model))

    async def WatchQueue(  # type: ignore[override] # the writer API: it ends in this coroutine's own time
        self, request: pb.WatchQueueRequest, context: Context
    ) -> None:
        """The same whenever they change; snapshots come once a second."""
        shown: list[pb.Queue] = []
        async with patient(context.write) as write:
            while True:
                queues = await self._queues(request.model)
                if [admin.without_time(queue) for queue in queues] != shown:
                    shown = [admin.without_time(queue) for queue in queues]
                    await write(pb.WatchQueueResponse(queues=queues))
                await self._views.next_look().wait()

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> pb.ListDeadLettersResponse:
        """What was set aside, newest first."""
        letters, token = await self._dead_letters.page(
            request.model, request.page_size, request.page_token
        )
        return pb.ListDeadLettersResponse(
            dead_letters=[admin.dead_letter_to_pb(*one) for one in letters], next_page_token=token
        )

    async def GetDeadLetter(
        self, request: pb.GetDeadLetterRequest, context: Context
    ) -> pb.GetDeadLetterResponse:
        """One of them."""
        found = await self._dead_letters.get(request.request_id)
        return pb.GetDeadLetterResponse(dead_letter=admin.dead_letter_to_pb(*found))

    async def ReplayDeadLetter(
        self, request: pb.ReplayDeadLetterRequest, context: Context
    ) -> pb.ReplayDeadLetterResponse:
        """One of them again, as a new request."""
        trace = extract_context(metadata_of(context))
        request_id = await self._dead_letters.replay(request.request_id, trace)
        return pb.ReplayDeadLetterResponse(request_id=str(request_id))

    async def CreateKey(
        self, request: pb.CreateKeyRequest, context: Context
    ) -> pb.CreateKeyResponse:
        """A new key; its secret is told this once."""
        return await self._tenants.create_key(request)

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:
        """Keys without their secrets."""
        return await self._tenants.list_keys(request.tenant)

    async def RevokeKey(
        self, request: pb.RevokeKeyRequest, context: Context
    ) -> pb.RevokeKeyResponse:
        """A key that opens nothing any more."""
        return await self._tenants.revoke_key(request.key_id)

    async def SetTenant(
        self, request: pb.SetTenantRequest, context: Context
    ) -> pb.SetTenantResponse:
        """A tenant's new limits."""
        return await self._tenants.set_tenant(request)

    async def GetTenant(
        self, request: pb.GetTenantRequest, context: Context
    ) -> pb.GetTenantResponse:
        """A tenant's limits, and what it uses of them."""
        return await self._tenants.get_tenant(request.tenant)

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        """What is stored about a tenant's requests, or about one, is deleted."""
        return await self._forgetting.forget(request)

    async def SetModelAlias(
        self, request: pb.SetModelAliasRequest, context: Context
    ) -> pb.SetModelAliasResponse:
        """A name and its targets."""
        alias = await self._aliases.set(alias_of(request.alias))
        return pb.SetModelAliasResponse(alias=alias_to_pb(alias))

    async def ListModelAliases(
        self, request: pb.ListModelAliasesRequest, context: Context
    ) -> pb.ListModelAliasesResponse:
        """All names."""
        await self._catalogue.first_look()
        return pb.ListModelAliasesResponse(
            aliases=[alias_to_pb(alias) for alias in self._catalogue.aliases]
        )

    async def PromoteModel(
        self, request: pb.PromoteModelRequest, context: Context
    ) -> pb.PromoteModelResponse:
        """All traffic of a name to a revision, or back."""
        alias = await self._aliases.promote(request.name, request.revision)
        return pb.PromoteModelResponse(alias=alias_to_pb(alias))

    async def SetLogLevel(
        self, request: pb.SetLogLevelRequest, context: Context
    ) -> pb.SetLogLevelResponse:
        """How much this gateway logs from now on."""
        if request.level not in [*LogLevel]:
            rule = f"must be one of {', '.join(LogLevel)}"
            raise InvalidRequest([FieldViolation("level", rule)])
        return pb.SetLogLevelResponse(former_level=set_log_level(LogLevel(request.level)))

    async def _queues(self, name: str) -> list[pb.Queue]:
        return [
            admin.queue_to_pb(partition, await self._views.look(partition))
            for partition in await self._partitions(name)
        ]

    async def _statuses(self, name: str) -> Sequence[PartitionStatus]:
        found = [await self._views.look(one) for one in await self._partitions(name)]
        return [status for status in found if status is not None]

    async def _partitions(self, name: str) -> Sequence[Partition]:
        """Of a model, or of all."""
        if name:
            findings = Findings()
            check_model(name, findings)
            findings.raise_if_any()
            models = [await self._catalogue.get(name)]
        else:
            await self._catalogue.first_look()
            models = [*self._catalogue.models]
        return [partition for model in models for partition in partitions_of(model)]

    async def _find(self, worker_id: str) -> tuple[PartitionStatus, WorkerStatus]:
        for status in await self._statuses(""):
            for worker in status.workers:
                if worker.worker_id == worker_id:
                    return status, worker
        raise NotFound(
            f"there is no worker {worker_id[:100]!r}",
            reason="WORKER_NOT_FOUND",
            metadata={"resource_type": "worker", "resource_name": worker_id},
        )
