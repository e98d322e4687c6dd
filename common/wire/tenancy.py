"""API keys and tenants' limits as operators see and set them (``headrace.v1.AdminService``)."""

import math

from common.domain import MODEL_NAME, Priority
from common.errors import FieldViolation, InvalidRequest
from common.streams.quota import QuotaUse
from common.tenancy import ApiKey, TenantLimits
from common.wire import public, vocabulary
from headrace.v1 import admin_service_pb2 as pb
from headrace.v1 import generation_pb2 as gen

_MAX_MODELS = 1000
_MAX_WEIGHT = 1000.0
_MOST = 2**53


def key_to_pb(key: ApiKey) -> pb.Key:
    """A key without its secret."""
    message = pb.Key(
        key_id=key.key_id,
        tenant=key.tenant,
        description=key.description,
        created_at=public.timestamp(key.created_ms),
        revoked=key.is_revoked,
    )
    if key.expires_ms is not None:
        message.expires_at.CopyFrom(public.timestamp(key.expires_ms))
    return message


def limits_to_pb(limits: TenantLimits) -> pb.TenantLimits:
    """Limits in force."""
    return pb.TenantLimits(
        models=limits.models,
        highest_priority=vocabulary.priority_to_pb(limits.highest_priority),
        weight=limits.weight,
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent_requests=limits.concurrent_requests,
    )


def limits_from_pb(message: pb.TenantLimits) -> TenantLimits:
    """Limits to set.

    Raises:
        InvalidRequest: some make no sense.
    """
    found: list[FieldViolation] = []
    if len(message.models) > _MAX_MODELS or not all(map(MODEL_NAME.fullmatch, message.models)):
        found.append(
            FieldViolation("limits.models", f"must be at most {_MAX_MODELS} names of models")
        )
    if message.highest_priority not in gen.Priority.values():
        found.append(FieldViolation("limits.highest_priority", "must be a known class"))
    weight = message.weight if message.HasField("weight") else 1.0
    if not (math.isfinite(weight) and 0 < weight <= _MAX_WEIGHT):
        found.append(
            FieldViolation("limits.weight", f"must be above 0 and at most {_MAX_WEIGHT:g}")
        )
    numbers: dict[str, int | None] = {}
    for name in ("requests_per_minute", "tokens_per_minute", "concurrent_requests"):
        numbers[name] = getattr(message, name) if message.HasField(name) else None
        if (numbers[name] or 0) > _MOST:
            found.append(FieldViolation(f"limits.{name}", f"must be at most {_MOST}"))
    if found:
        raise InvalidRequest(found)
    unset = message.highest_priority == gen.PRIORITY_UNSPECIFIED
    return TenantLimits(
        models=tuple(message.models),
        highest_priority=(
            Priority.CRITICAL if unset else vocabulary.priority_from_pb(message.highest_priority)
        ),
        weight=weight,
        requests_per_minute=numbers["requests_per_minute"],
        tokens_per_minute=numbers["tokens_per_minute"],
        concurrent_requests=numbers["concurrent_requests"],
    )


def tenant_to_pb(limits: TenantLimits, use: QuotaUse) -> pb.GetTenantResponse:
    """A tenant's limits and what counts now."""
    return pb.GetTenantResponse(
        limits=limits_to_pb(limits),
        requests_used=use.requests,
        tokens_used=use.tokens,
        requests_open=use.open_requests,
    )
