"""API keys and tenants' limits as operators set them. Gateways look them up again and again, so changes need no restart."""

import json
from typing import TYPE_CHECKING, Any

from common import keys
from common.domain import Priority
from common.streams.node import Node
from common.tenancy import ApiKey, TenantLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

_REVOKED = "revoked:"


async def store_key(node: Node, key: ApiKey, *, bound_s: float) -> None:
    """Raises Unavailable: it may have been stored all the same, but nobody has its secret."""
    value = json.dumps(
        {
            "tenant": key.tenant,
            "digest": key.digest,
            "description": key.description,
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
        }
    )
    await node.call(
        lambda client: client.hset(keys.api_keys(), key.key_id, value), bound_s=bound_s
    )


async def find_key(node: Node, key_id: str, *, bound_s: float) -> ApiKey | None:
    """None: there is no such key."""
    value, revoked = await node.call(
        lambda client: client.hmget(keys.api_keys(), [key_id, _REVOKED + key_id]), bound_s=bound_s
    )
    return None if value is None else _key(key_id, value, is_revoked=revoked is not None)


async def list_keys(node: Node, *, bound_s: float) -> list[ApiKey]:
    """All of them, oldest first."""
    found: Mapping[bytes, bytes] = await node.call(
        lambda client: client.hgetall(keys.api_keys()), bound_s=bound_s
    )
    fields = {name.decode(): value for name, value in found.items()}
    listed = [
        _key(name, value, is_revoked=_REVOKED + name in fields)
        for name, value in fields.items()
        if not name.startswith(_REVOKED)
    ]
    return sorted(listed, key=lambda key: (key.created_ms, key.key_id))


async def revoke_key(node: Node, key_id: str, *, bound_s: float) -> ApiKey | None:
    """The key, which opens nothing any more; None: there is no such key."""
    found = await find_key(node, key_id, bound_s=bound_s)
    if found is None:
        return None
    # Beside the key and not in it, so that revoking and issuing never overwrite one another.
    await node.call(
        lambda client: client.hset(keys.api_keys(), _REVOKED + key_id, 1), bound_s=bound_s
    )
    return await find_key(node, key_id, bound_s=bound_s)


async def store_limits(node: Node, tenant: str, limits: TenantLimits, *, bound_s: float) -> None:
    """Replaces what was set before."""
    value = json.dumps(
        {
            "models": limits.models,
            "highest_priority": limits.highest_priority.name,
            "weight": limits.weight,
            "requests_per_minute": limits.requests_per_minute,
            "tokens_per_minute": limits.tokens_per_minute,
            "concurrent_requests": limits.concurrent_requests,
        }
    )
    await node.call(lambda client: client.hset(keys.tenants(), tenant, value), bound_s=bound_s)


async def find_limits(node: Node, tenant: str, *, bound_s: float) -> TenantLimits | None:
    """None: nothing was set for this tenant."""
    value = await node.call(lambda client: client.hget(keys.tenants(), tenant), bound_s=bound_s)
    return None if value is None else _limits(value)


async def list_limits(node: Node, *, bound_s: float) -> dict[str, TenantLimits]:
    """Of every tenant that something was set for."""
    found: dict[bytes, bytes] = await node.call(
        lambda client: client.hgetall(keys.tenants()), bound_s=bound_s
    )
    return {tenant.decode(): _limits(value) for tenant, value in found.items()}


def _limits(value: bytes) -> TenantLimits:
    facts: dict[str, Any] = json.loads(value)
    return TenantLimits(
        models=tuple(facts["models"]),
        highest_priority=Priority[facts["highest_priority"]],
        weight=facts["weight"],
        requests_per_minute=facts["requests_per_minute"],
        tokens_per_minute=facts["tokens_per_minute"],
        concurrent_requests=facts["concurrent_requests"],
    )


def _key(key_id: str, value: bytes, *, is_revoked: bool) -> ApiKey:
    facts: dict[str, Any] = json.loads(value)
    return ApiKey(key_id=key_id, is_revoked=is_revoked, **facts)
