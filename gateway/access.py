"""Who may call, and what they may do: API keys and tenants' limits, as they are in Redis now.

What was looked up holds for a moment, in every gateway for itself: a key that is revoked, or a limit that is changed,
takes effect everywhere within CACHED_S, without a restart.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from common.clock import monotonic_s
from common.errors import PermissionDenied, Unauthenticated, Unavailable
from common.streams.node import Node
from common.streams.tenants import find_key, find_limits
from common.tenancy import UNLIMITED, ApiKey, TenantLimits, key_id_of

CACHED_S = 2.0
_MAX_CACHED = 10_000
_BOUND_S = 2.0
_SCHEME = "bearer "
DEFAULT_TENANT = "default"

T = TypeVar("T")
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Identity:
    """A tenant, and the key that says so ('' where none is asked for)."""

    tenant: str
    key_id: str = ""
    limits: TenantLimits = UNLIMITED


class Access:
    """Looks at what a call brings along."""

    def __init__(self, node: Node, *, requires_keys: bool, admin_key: str | None) -> None:
        """Without ``requires_keys`` a call says itself whose it is."""
        self._requires_keys = requires_keys
        self._admin_key = admin_key
        self._keys: _Cache[ApiKey | None] = _Cache(
            lambda key_id: find_key(node, key_id, bound_s=_BOUND_S)
        )
        self._limits: _Cache[TenantLimits | None] = _Cache(
            lambda tenant: find_limits(node, tenant, bound_s=_BOUND_S)
        )

    async def identify(self, pairs: Pairs) -> Identity:
        """Whose call it is.

        Raises:
            Unauthenticated: no key, or one that does not hold.
            PermissionDenied: the call names another tenant than its key's.
            Unavailable: Redis cannot be reached.
        """
        metadata = dict(pairs)
        named = metadata.get("x-tenant-id", "")
        if not self._requires_keys:
            tenant = named or DEFAULT_TENANT
            return Identity(tenant, "", await self._limits_of(tenant))
        secret = _bearer(metadata)
        if not secret:
            raise _unauthenticated("an API key is required", "MISSING_KEY")
        key_id = key_id_of(secret)
        key = None if key_id is None else await self._keys.get(key_id)
        # Expiry is a date that people chose, so the wall clock decides.
        if key is None or not key.opens(secret, int(time.time() * 1000)):
            raise _unauthenticated("the API key is unknown, revoked or expired", "INVALID_KEY")
        if named and named != key.tenant:
            raise PermissionDenied(
                "the API key belongs to another tenant than x-tenant-id names",
                reason="TENANT_MISMATCH",
            )
        return Identity(key.tenant, key.key_id, await self._limits_of(key.tenant))

    def require_operator(self, pairs: Pairs) -> None:
        """Only the holder of the admin key operates, where there is one or where keys are required at all.

        Raises:
            Unauthenticated: this caller is not.
        """
        if self._admin_key is None and not self._requires_keys:
            return
        secret, expected = _bearer(dict(pairs)), self._admin_key
        if expected is None or not hmac.compare_digest(secret.encode(), expected.encode()):
            raise _unauthenticated("the admin key is required", "ADMIN_KEY_REQUIRED")

    async def _limits_of(self, tenant: str) -> TenantLimits:
        return await self._limits.get(tenant) or UNLIMITED


class _Cache(Generic[T]):
    """What was looked up a moment ago. Who asks for the same at once waits for one look-up."""

    def __init__(self, look_up: Callable[[str], Awaitable[T]]) -> None:
        self._look_up = look_up
        self._found: dict[str, tuple[float, T]] = {}
        self._asking: dict[str, asyncio.Future[T]] = {}

    async def get(self, name: str) -> T:
        known = self._found.get(name)
        if known is not None and monotonic_s() - known[0] < CACHED_S:
            return known[1]
        asking = self._asking.get(name)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(name))
            self._asking[name] = asking
            asking.add_done_callback(lambda done: self._asked(name, done))
        try:
            return await asyncio.shield(asking)
        except Unavailable:
            if known is None:
                raise
            # What held a moment ago; while Redis is away nothing is admitted anyway.
            return known[1]

    async def _ask(self, name: str) -> T:
        found = await self._look_up(name)
        if len(self._found) >= _MAX_CACHED:
            # Names that nobody has are as many as somebody likes to send: all are forgotten together.
            self._found.clear()
        self._found[name] = (monotonic_s(), found)
        return found

    def _asked(self, name: str, done: asyncio.Future[T]) -> None:
        del self._asking[name]
        if not done.cancelled():
            done.exception()  # seen, though everybody who asked may have left


def _bearer(metadata: dict[str, str]) -> str:
    value = metadata.get("authorization", "")
    return value[len(_SCHEME) :].strip() if value.lower().startswith(_SCHEME) else ""


def _unauthenticated(message: str, reason: str) -> Unauthenticated:
    return Unauthenticated(message, reason=reason)
