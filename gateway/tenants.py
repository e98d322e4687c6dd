"""Keys and tenants for operators: issued, listed, revoked, limited."""

from common import keys
from common.errors import InvalidRequest, NotFound
from common.streams import tenants
from common.streams.node import Node
from common.streams.quota import use_of
from common.tenancy import UNLIMITED, ApiKey
from common.wire import tenancy
from gateway.validation.fields import check_tenant
from gateway.validation.findings import Findings
from headrace.v1 import admin_service_pb2 as pb

_BOUND_S = 2.0
_MAX_DESCRIPTION_BYTES = 256


class Tenants:
    """What is stored of keys and tenants."""

    def __init__(self, node: Node) -> None:
        """In this Redis."""
        self._node = node

    async def create_key(self, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
        """Issue a key.

        Raises:
            InvalidRequest: for nobody, or for no time.
        """
        findings = Findings()
        _check_name(request.tenant, findings)
        findings.size("description", request.description, _MAX_DESCRIPTION_BYTES)
        now_ms = await self._node.time_ms(keys.api_keys(), bound_s=_BOUND_S)
        expires_ms = None
        if request.HasField("expires_at"):
            expires_ms = request.expires_at.seconds * 1000 + request.expires_at.nanos // 1_000_000
            if expires_ms <= now_ms:
                findings.add("expires_at", "must not have passed")
        findings.raise_if_any()
        key, secret = ApiKey.issue(request.tenant, request.description, now_ms, expires_ms)
        await tenants.store_key(self._node, key, bound_s=_BOUND_S)
        return pb.CreateKeyResponse(key=tenancy.key_to_pb(key), secret=secret)

    async def list_keys(self, tenant: str) -> pb.ListKeysResponse:
        """A tenant's keys, or all."""
        found = await tenants.list_keys(self._node, bound_s=_BOUND_S)
        return pb.ListKeysResponse(
            keys=[tenancy.key_to_pb(key) for key in found if tenant in ("", key.tenant)]
        )

    async def revoke_key(self, key_id: str) -> pb.RevokeKeyResponse:
        """Take a key back.

        Raises:
            NotFound: there is none of this id.
        """
        key = await tenants.revoke_key(self._node, key_id, bound_s=_BOUND_S)
        if key is None:
            raise NotFound(
                "there is no such key",
                reason="KEY_NOT_FOUND",
                metadata={"resource_type": "key", "resource_name": key_id},
            )
        return pb.RevokeKeyResponse(key=tenancy.key_to_pb(key))

    async def set_tenant(self, request: pb.SetTenantRequest) -> pb.SetTenantResponse:
        """Replace a tenant's limits.

        Raises:
            InvalidRequest: some make no sense.
        """
        findings = Findings()
        _check_name(request.tenant, findings)
        try:
            limits = tenancy.limits_from_pb(request.limits)
        except InvalidRequest as error:
            raise InvalidRequest([*findings.violations, *error.violations]) from error
        findings.raise_if_any()
        await tenants.store_limits(self._node, request.tenant, limits, bound_s=_BOUND_S)
        return pb.SetTenantResponse(limits=tenancy.limits_to_pb(limits))

    async def get_tenant(self, tenant: str) -> pb.GetTenantResponse:
        """A tenant's limits and use; of one that nothing was set for, no limits.

        Raises:
            InvalidRequest: this is no name of a tenant.
        """
        findings = Findings()
        _check_name(tenant, findings)
        findings.raise_if_any()
        limits = await tenants.find_limits(self._node, tenant, bound_s=_BOUND_S) or UNLIMITED
        use = await use_of(self._node, tenant, bound_s=_BOUND_S)
        return tenancy.tenant_to_pb(limits, use)


def _check_name(tenant: str, findings: Findings) -> None:
    named = Findings()
    check_tenant(tenant, named)
    for violation in named.violations:
        findings.add("tenant", violation.description)
