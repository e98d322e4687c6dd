"""Tenants and their API keys, in plain values: how a key is made, hashed and compared, and what a tenant may do."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Self

from common.domain import Priority

_PREFIX = "hr"
_ID_BYTES = 8
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What a tenant may do; the default is everything."""

    models: tuple[str, ...] = ()
    """Empty for all."""
    highest_priority: Priority = Priority.CRITICAL
    weight: float = 1.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @property
    def are_counted(self) -> bool:
        """Whether something has to be counted before a request is let in."""
        counted = (self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests)
        return any(limit is not None for limit in counted)

    def allows_model(self, model: str) -> bool:
        """Whether the tenant may use it."""
        return not self.models or model in self.models


UNLIMITED = TenantLimits()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: of the secret there is only a digest, which it cannot be found from.

    The secret has 256 random bits, so one round of SHA-256 is enough: there is nothing to guess slowly.
    """

    key_id: str
    tenant: str
    digest: str
    description: str
    created_ms: int
    expires_ms: int | None = None
    is_revoked: bool = False

    @classmethod
    def issue(
        cls, tenant: str, description: str, created_ms: int, expires_ms: int | None
    ) -> tuple[Self, str]:
        """A new key, and its secret for this one time."""
        key_id = secrets.token_hex(_ID_BYTES)
        secret = f"{_PREFIX}-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"
        key = cls(key_id, tenant, _digest(secret), description, created_ms, expires_ms)
        return key, secret

    def opens(self, secret: str, now_ms: int) -> bool:
        """Whether ``secret`` is this key's, and the key holds."""
        is_same = hmac.compare_digest(self.digest, _digest(secret))
        return (
            is_same
            and not self.is_revoked
            and (self.expires_ms is None or now_ms < self.expires_ms)
        )


def key_id_of(secret: str) -> str | None:
    """The public part of a secret; None when it has not the form of one."""
    prefix, _, rest = secret.partition("-")
    key_id, _, random = rest.partition("-")
    is_one = prefix == _PREFIX and len(key_id) == 2 * _ID_BYTES and len(random) >= _SECRET_BYTES
    return (
        key_id if is_one and key_id.isalnum() and key_id.isascii() and len(secret) < 256 else None
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
