"""Who calls and what the call's metadata says: the border to gRPC's contexts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio

from common.clock import monotonic_s
from common.domain import Priority, TraceContext
from common.tenancy import TenantLimits
from common.tracing import extract_context
from gateway.access import Access, Identity

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ECHO_CHARS = 256
_MAX_BAGGAGE_CHARS = 4096

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """A call's circumstances. ``expires_s`` is its deadline by this process's monotonic clock."""

    identity: Identity
    priority: str
    idempotency_key: str
    echo: str
    trace: TraceContext
    baggage: str
    started_s: float
    expires_s: float | None

    @property
    def tenant(self) -> str:
        """Whose call it is."""
        return self.identity.tenant

    @property
    def limits(self) -> TenantLimits:
        """What that tenant may do."""
        return self.identity.limits

    @property
    def remaining_s(self) -> float | None:
        """Seconds to the call's deadline, None without one."""
        return None if self.expires_s is None else self.expires_s - monotonic_s()


class Callers:
    """Finds out who calls."""

    def __init__(self, access: Access) -> None:
        """``access`` knows keys and tenants."""
        self._access = access

    async def of_context(self, context: Context) -> Caller:
        """The caller behind a context.

        Raises:
            HeadraceError: nobody knows him, or nobody can tell now.
        """
        return await self.of_pairs(metadata_of(context), context.time_remaining())

    async def of_pairs(
        self, pairs: Sequence[tuple[str, str]], remaining_s: float | None
    ) -> Caller:
        """The caller by metadata or headers.

        Raises:
            HeadraceError: nobody knows him, or nobody can tell now.
        """
        now_s = monotonic_s()
        identity = await self._access.identify(pairs)
        metadata = dict(pairs)
        baggage = metadata.get("baggage", "")
        usual = min(Priority.NORMAL, identity.limits.highest_priority)
        return Caller(
            identity=identity,
            priority=metadata.get("x-priority", usual.name).upper(),
            idempotency_key=metadata.get("idempotency-key", ""),
            echo=metadata.get("x-request-id", "")[:MAX_ECHO_CHARS],
            trace=extract_context(pairs),
            baggage=baggage if len(baggage) <= _MAX_BAGGAGE_CHARS else "",
            started_s=now_s,
            expires_s=None if remaining_s is None else now_s + remaining_s,
        )

    async def require_known(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Raises HeadraceError: nobody knows the caller, or nobody can tell now."""
        await self._access.identify(pairs)

    def require_operator(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Raises Unauthenticated: this is none."""
        self._access.require_operator(pairs)


def metadata_of(context: Context) -> list[tuple[str, str]]:
    """A call's metadata but for keys that end in -bin: they carry bytes, which the stubs leave out."""
    everything: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
    return [(key, value) for key, value in everything if isinstance(value, str)]
