"""The operators' calls, for threads."""

from collections.abc import Iterator
from datetime import datetime

from headrace.client.channels import Channels
from headrace.client.connection import FORGET_TIMEOUT_S
from headrace.client.requests import duration
from headrace.v1 import admin_service_pb2 as pb


class Admin:
    """Looks at and steers a running system."""

    def __init__(self, channels: Channels, timeout_s: float | None) -> None:
        """Belongs to a ``Client``, which closes the channels."""
        self._channels = channels
        self._timeout_s = timeout_s

    def workers(self, model: str = "") -> list[pb.Worker]:
        """The workers of a model, or all."""
        method, request = self._channels.admin().ListWorkers, pb.ListWorkersRequest(model=model)
        return list(self._channels.unary(method, request, timeout_s=self._timeout_s).workers)

    def drain(self, worker_id: str, grace_s: float | None = None) -> pb.Worker:
        """Lets a worker finish what it runs; the server's grace applies where none is given."""
        request = pb.DrainWorkerRequest(worker_id=worker_id)
        if grace_s is not None:
            request.grace.CopyFrom(duration(grace_s))
        method = self._channels.admin().DrainWorker
        return self._channels.unary(method, request, timeout_s=self._timeout_s).worker

    def queue(self, model: str = "") -> list[pb.Queue]:
        """The queues of a model, or of all, now: one for each partition."""
        method, request = self._channels.admin().GetQueue, pb.GetQueueRequest(model=model)
        return list(self._channels.unary(method, request, timeout_s=self._timeout_s).queues)

    def aliases(self) -> list[pb.ModelAlias]:
        """The names that point at models."""
        method, request = self._channels.admin().ListModelAliases, pb.ListModelAliasesRequest()
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.aliases)

    def set_alias(self, alias: pb.ModelAlias) -> pb.ModelAlias:
        """Lets a name point at models; without targets the name is removed."""
        method = self._channels.admin().SetModelAlias
        request = pb.SetModelAliasRequest(alias=alias)
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.alias

    def promote(self, name: str, revision: str = "") -> pb.ModelAlias:
        """All traffic of a name or model to a revision; without one, back to what was before."""
        method = self._channels.admin().PromoteModel
        request = pb.PromoteModelRequest(name=name, revision=revision)
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.alias

    def dead_letters(self, model: str = "") -> Iterator[pb.DeadLetter]:
        """Requests that were set aside, newest first; fetches page after page."""
        request = pb.ListDeadLettersRequest(model=model)
        while True:
            method = self._channels.admin().ListDeadLetters
            page = self._channels.unary(method, request, timeout_s=self._timeout_s)
            yield from page.dead_letters
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def dead_letter(self, request_id: str) -> pb.DeadLetter:
        """One of them with its history."""
        request = pb.GetDeadLetterRequest(request_id=request_id)
        method = self._channels.admin().GetDeadLetter
        return self._channels.unary(method, request, timeout_s=self._timeout_s).dead_letter

    def replay(self, request_id: str) -> str:
        """Runs one of them again; returns the new request's id."""
        request = pb.ReplayDeadLetterRequest(request_id=request_id)
        method = self._channels.admin().ReplayDeadLetter
        return self._channels.unary(method, request, timeout_s=self._timeout_s).request_id

    def create_key(
        self, tenant: str, description: str = "", expires_at: datetime | None = None
    ) -> pb.CreateKeyResponse:
        """Issues an API key; the answer is the only one that bears its secret."""
        request = pb.CreateKeyRequest(tenant=tenant, description=description)
        if expires_at is not None:
            request.expires_at.FromDatetime(expires_at)
        method = self._channels.admin().CreateKey
        return self._channels.unary(method, request, timeout_s=self._timeout_s)

    def keys(self, tenant: str = "") -> list[pb.Key]:
        """The keys of a tenant, or all, without their secrets."""
        method, request = self._channels.admin().ListKeys, pb.ListKeysRequest(tenant=tenant)
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return list(answer.keys)

    def revoke_key(self, key_id: str) -> pb.Key:
        """Takes a key back."""
        method, request = self._channels.admin().RevokeKey, pb.RevokeKeyRequest(key_id=key_id)
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.key

    def set_tenant(self, tenant: str, limits: pb.TenantLimits) -> pb.TenantLimits:
        """Replaces a tenant's limits."""
        request = pb.SetTenantRequest(tenant=tenant, limits=limits)
        method = self._channels.admin().SetTenant
        answer = self._channels.unary(method, request, timeout_s=self._timeout_s)
        return answer.limits

    def tenant(self, tenant: str) -> pb.GetTenantResponse:
        """A tenant's limits, and what it uses of them."""
        method, request = self._channels.admin().GetTenant, pb.GetTenantRequest(tenant=tenant)
        return self._channels.unary(method, request, timeout_s=self._timeout_s)

    def forget(self, *, tenant: str = "", request_id: str = "") -> int:
        """Deletes what is stored about a tenant's requests, or about one; how many there were."""
        request = pb.ForgetRequest(request_id=request_id)
        if tenant:
            request = pb.ForgetRequest(tenant=tenant)
        method = self._channels.admin().Forget
        answer = self._channels.unary(method, request, timeout_s=FORGET_TIMEOUT_S)
        return answer.requests
