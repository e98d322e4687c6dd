"""The operators' calls, for asyncio."""

from collections.abc import AsyncIterator
from datetime import datetime

from headrace.client.aio_channels import AioChannels
from headrace.client.connection import FORGET_TIMEOUT_S
from headrace.client.requests import duration
from headrace.v1 import admin_service_pb2 as pb


class AsyncAdmin:
    """Looks at and steers a running system."""

    def __init__(self, channels: AioChannels, timeout_s: float | None) -> None:
        """Belongs to an ``AsyncClient``, which closes the channels."""
        self._channels = channels
        self._timeout_s = timeout_s

    async def workers(self, model: str = "") -> list[pb.Worker]:
        """The workers of a model, or all."""
        method, request = self._channels.admin().ListWorkers, pb.ListWorkersRequest(model=model)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.workers)

    async def drain(self, worker_id: str, grace_s: float | None = None) -> pb.Worker:
        """Lets a worker finish what it runs; the server's grace applies where none is given."""
        request = pb.DrainWorkerRequest(worker_id=worker_id)
        if grace_s is not None:
            request.grace.CopyFrom(duration(grace_s))
        method = self._channels.admin().DrainWorker
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.worker

    async def queue(self, model: str = "") -> list[pb.Queue]:
        """The queues of a model, or of all, now: one for each partition."""
        method, request = self._channels.admin().GetQueue, pb.GetQueueRequest(model=model)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.queues)

    async def aliases(self) -> list[pb.ModelAlias]:
        """The names that point at models."""
        method, request = self._channels.admin().ListModelAliases, pb.ListModelAliasesRequest()
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.aliases)

    async def set_alias(self, alias: pb.ModelAlias) -> pb.ModelAlias:
        """Lets a name point at models; without targets the name is removed."""
        method = self._channels.admin().SetModelAlias
        request = pb.SetModelAliasRequest(alias=alias)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.alias

    async def promote(self, name: str, revision: str = "") -> pb.ModelAlias:
        """All traffic of a name or model to a revision; without one, back to what was before."""
        method = self._channels.admin().PromoteModel
        request = pb.PromoteModelRequest(name=name, revision=revision)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.alias

    async def dead_letters(self, model: str = "") -> AsyncIterator[pb.DeadLetter]:
        """Requests that were set aside, newest first; fetches page after page."""
        request = pb.ListDeadLettersRequest(model=model)
        while True:
            method = self._channels.admin().ListDeadLetters
            page = await self._channels.unary(method, request, timeout_s=self._timeout_s)
            for letter in page.dead_letters:
                yield letter
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def dead_letter(self, request_id: str) -> pb.DeadLetter:
        """One of them with its history."""
        request = pb.GetDeadLetterRequest(request_id=request_id)
        method = self._channels.admin().GetDeadLetter
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.dead_letter

    async def replay(self, request_id: str) -> str:
        """Runs one of them again; returns the new request's id."""
        request = pb.ReplayDeadLetterRequest(request_id=request_id)
        method = self._channels.admin().ReplayDeadLetter
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.request_id

    async def create_key(
        self, tenant: str, description: str = "", expires_at: datetime | None = None
    ) -> pb.CreateKeyResponse:
        """Issues an API key; the answer is the only one that bears its secret."""
        request = pb.CreateKeyRequest(tenant=tenant, description=description)
        if expires_at is not None:
            request.expires_at.FromDatetime(expires_at)
        method = self._channels.admin().CreateKey
        return await self._channels.unary(method, request, timeout_s=self._timeout_s)

    async def keys(self, tenant: str = "") -> list[pb.Key]:
        """The keys of a tenant, or all, without their secrets."""
        method, request = self._channels.admin().ListKeys, pb.ListKeysRequest(tenant=tenant)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.keys)

    async def revoke_key(self, key_id: str) -> pb.Key:
        """Takes a key back."""
        method, request = self._channels.admin().RevokeKey, pb.RevokeKeyRequest(key_id=key_id)
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.key

    async def set_tenant(self, tenant: str, limits: pb.TenantLimits) -> pb.TenantLimits:
        """Replaces a tenant's limits."""
        request = pb.SetTenantRequest(tenant=tenant, limits=limits)
        method = self._channels.admin().SetTenant
        answer = await self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.limits

    async def tenant(self, tenant: str) -> pb.GetTenantResponse:
        """A tenant's limits, and what it uses of them."""
        method, request = self._channels.admin().GetTenant, pb.GetTenantRequest(tenant=tenant)
        return await self._channels.unary(method, request, timeout_s=self._timeout_s)

    async def forget(self, *, tenant: str = "", request_id: str = "") -> int:
        """Deletes what is stored about a tenant's requests, or about one; how many there were."""
        request = pb.ForgetRequest(request_id=request_id)
        if tenant:
            request = pb.ForgetRequest(tenant=tenant)
        method = self._channels.admin().Forget
        answer = await self._channels.unary(method, request, timeout_s=FORGET_TIMEOUT_S)
        return answer.requests
