"""What can go wrong for a caller, as one exception tree made from google.rpc details.

    HeadraceError
    ├── InvalidRequest      INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION: field_violations says what
    ├── Unimplemented       UNIMPLEMENTED: valid, but this server cannot do it
    ├── Unauthenticated     UNAUTHENTICATED
    ├── PermissionDenied    PERMISSION_DENIED
    ├── NotFound            NOT_FOUND: resource says what
    ├── AlreadyExists       ALREADY_EXISTS
    ├── ResourceExhausted   RESOURCE_EXHAUSTED: queue full or quota used
    ├── Unavailable         UNAVAILABLE: not now
    ├── DeadlineExceeded    DEADLINE_EXCEEDED: metadata["stage"] says where the time went
    ├── Cancelled           CANCELLED
    ├── Aborted             ABORTED: given up by policy
    └── InternalFailure     INTERNAL, DATA_LOSS, UNKNOWN: repeating it unchanged would fail again

``retry_after_s`` is set exactly when the server says that a retry can help.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A refused field: its path in the request, and what is wrong with it."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Resource:
    """The thing an error is about."""

    type: str
    name: str


class HeadraceError(Exception):
    """Base of everything the client raises about a call."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        retry_after_s: float | None = None,
        resource: Resource | None = None,
        request_id: str | None = None,
    ) -> None:
        """``code`` names the gRPC status code; ``reason`` is the server's stable label, if it gave one."""
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.field_violations = tuple(field_violations)
        self.retry_after_s = retry_after_s
        self.resource = resource
        self.request_id = request_id

    def __str__(self) -> str:
        """One line with every fact that helps."""
        parts = [f"{self.code} ({self.reason})" if self.reason else self.code]
        if self.message:
            parts.append(self.message)
        # A message made from the violations names them already.
        parts += [
            f"{v.field}: {v.description}"
            for v in self.field_violations
            if f"{v.field}: {v.description}" not in self.message
        ]
        if self.resource is not None and self.resource.name not in self.message:
            parts.append(f"{self.resource.type} {self.resource.name}")
        named = self.message if self.resource is None else f"{self.message} {self.resource.name}"
        if self.request_id and self.request_id not in named:
            parts.append(f"request {self.request_id}")
        if self.retry_after_s is not None:
            parts.append(f"retry after {self.retry_after_s:.3g} s")
        return "; ".join(" ".join(part.split()) for part in parts)


class InvalidRequest(HeadraceError):
    """The request was refused as it stands."""


class Unimplemented(HeadraceError):
    """This server does not have the feature or the method."""


class Unauthenticated(HeadraceError):
    """No valid key."""


class PermissionDenied(HeadraceError):
    """The key does not allow this."""


class NotFound(HeadraceError):
    """The named thing does not exist."""


class AlreadyExists(HeadraceError):
    """The idempotency key is taken by another request."""


class ResourceExhausted(HeadraceError):
    """A queue is full or a quota is used up."""


class Unavailable(HeadraceError):
    """Not now, or no connection."""


class DeadlineExceeded(HeadraceError):
    """The time ran out."""


class Cancelled(HeadraceError):
    """The request or the call was cancelled."""


class Aborted(HeadraceError):
    """Given up by policy; a retry can succeed."""


class InternalFailure(HeadraceError):
    """The request failed on the server's side."""


ERROR_CLASSES: Mapping[str, type[HeadraceError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "FAILED_PRECONDITION": InvalidRequest,
    "UNIMPLEMENTED": Unimplemented,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "ABORTED": Aborted,
    "INTERNAL": InternalFailure,
    "DATA_LOSS": InternalFailure,
    "UNKNOWN": InternalFailure,
}
