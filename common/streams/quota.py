"""What tenants use of their limits: reserved before admission, settled by request id at the end, exact over all gateways.

    reserve ──▶ admit ──▶ … ──▶ terminal record ──▶ settle ──▶ ack
      └─ refused ──▶ release

The reservation is the most that a request can use. Whoever finds a terminal record settles, so a client that leaves
changes nothing, and a request that nobody settles is let go of when it cannot be running any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common import keys
from common.domain import RequestId
from common.lengths import LENGTHS
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script, run_scripts
from common.tenancy import TenantLimits

_MARGIN_MS = round(LENGTHS.orphan_grace_s * 1000)


@dataclass(frozen=True, slots=True)
class LimitReached:
    """Which limit is reached; ``retry_after_s`` None where no waiting helps."""

    limit: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Debit:
    """What a request that has ended used."""

    tenant: str
    request_id: RequestId
    tokens: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What counts now."""

    requests: int
    tokens: int
    open_requests: int


async def reserve(
    node: Node,
    tenant: str,
    request_id: RequestId,
    tokens: int,
    limits: TenantLimits,
    *,
    budget_s: float,
    bound_s: float,
) -> LimitReached | None:
    """Count a request that may use ``tokens`` and live for ``budget_s``; None: it may go on.

    Raises:
        Unavailable: no definite answer within ``bound_s``; it may have been counted all the same.
    """
    most = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)
    arguments = [
        str(request_id),
        tokens,
        *("" if limit is None else limit for limit in most),
        round(budget_s * 1000) + _MARGIN_MS,
        keys.QUOTA_TTL_MS,
    ]
    call = ScriptCall("reserve", keys.quota(tenant), arguments)
    answer = decoded(await run_script(node, call, bound_s=bound_s))
    if answer[0] == "ok":
        return None
    return LimitReached(answer[1], max(0.001, float(answer[2]) / 1000) if answer[2] else None)


async def settle(node: Node, debits: Sequence[Debit], *, bound_s: float | None) -> None:
    """Raises Unavailable: no definite answer within ``bound_s``; repeating it is harmless."""
    calls = [
        ScriptCall("settle_quota", keys.quota(debit.tenant), [str(debit.request_id), debit.tokens])
        for debit in debits
    ]
    await run_scripts(node, calls, bound_s=bound_s)


async def release(
    node: Node, tenant: str, request_id: RequestId, *, bound_s: float | None
) -> None:
    """The request was refused after it had been counted."""
    await settle(node, [Debit(tenant, request_id, -1)], bound_s=bound_s)


async def use_of(node: Node, tenant: str, *, bound_s: float) -> QuotaUse:
    """What counts of a tenant now.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    call = ScriptCall("read_quota", keys.quota(tenant), [])
    requests, tokens, num_open = map(int, await run_script(node, call, bound_s=bound_s))
    return QuotaUse(requests, tokens, num_open)
