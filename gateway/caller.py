"""Who calls and what the call's metadata says: the border to gRPC's contexts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio

from common.clock import monotonic_s
from common.domain import TraceContext
from common.tracing import extract_context

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ECHO_CHARS = 256
_MAX_BAGGAGE_CHARS = 4096
DEFAULT_TENANT = "default"

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """A call's circumstances. ``expires_s`` is its deadline by this process's monotonic clock."""

    tenant: str
    priority: str
    idempotency_key: str
    echo: str
    trace: TraceContext
    baggage: str
    started_s: float
    expires_s: float | None

    @property
    def remaining_s(self) -> float | None:
        """Seconds to the call's deadline, None without one."""
        return None if self.expires_s is None else self.expires_s - monotonic_s()


def caller_of(context: Context) -> Caller:
    """The caller behind a context."""
    # Keys that end in -bin carry bytes, which the stubs leave out.
    everything: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
    pairs = [(key, value) for key, value in everything if isinstance(value, str)]
    return caller_from(pairs, context.time_remaining())


def caller_from(pairs: Sequence[tuple[str, str]], remaining_s: float | None) -> Caller:
    """The caller by metadata or headers. Nobody is authenticated yet: the tenant is whom the call names."""
    metadata = dict(pairs)
    now_s = monotonic_s()
    baggage = metadata.get("baggage", "")
    return Caller(
        tenant=metadata.get("x-tenant-id", DEFAULT_TENANT),
        priority=metadata.get("x-priority", "normal").upper(),
        idempotency_key=metadata.get("idempotency-key", ""),
        echo=metadata.get("x-request-id", "")[:MAX_ECHO_CHARS],
        trace=extract_context(pairs),
        baggage=baggage if len(baggage) <= _MAX_BAGGAGE_CHARS else "",
        started_s=now_s,
        expires_s=None if remaining_s is None else now_s + remaining_s,
    )
