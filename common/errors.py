"""Everything that can go wrong for a caller, as one exception tree with stable labels.

    HeadraceError                      code                  reason
    ├── InvalidRequest                 INVALID_ARGUMENT      INVALID_REQUEST | CONTEXT_LENGTH_EXCEEDED | CONTENT_FILTER
    ├── NotImplementedYet              UNIMPLEMENTED         FIELD_NOT_IMPLEMENTED
    ├── NotFound                       NOT_FOUND             MODEL_NOT_FOUND | REQUEST_NOT_FOUND | DEAD_LETTER_NOT_FOUND …
    ├── Unauthenticated                UNAUTHENTICATED       MISSING_KEY | INVALID_KEY | ADMIN_KEY_REQUIRED
    ├── PermissionDenied               PERMISSION_DENIED     MODEL_NOT_ALLOWED | CLASS_NOT_ALLOWED | TENANT_MISMATCH
    ├── QuotaExceeded                  RESOURCE_EXHAUSTED    QUOTA_EXCEEDED            (retry helps, where it says when)
    ├── AlreadyExists                  ALREADY_EXISTS        IDEMPOTENCY_KEY_REUSED
    ├── QueueFull                      RESOURCE_EXHAUSTED    QUEUE_FULL | MESSAGES_FULL (retry helps)
    ├── Unavailable                    UNAVAILABLE           NO_WORKER | REVISION_LEFT | SHUTTING_DOWN …     (retry helps)
    ├── DeadlineExceeded               DEADLINE_EXCEEDED     DEADLINE_EXCEEDED | MESSAGE_TOO_SLOW, stage in metadata
    ├── Cancelled                      CANCELLED             CANCELLED
    ├── Aborted                        ABORTED               READER_TOO_SLOW
    └── InternalFailure                INTERNAL              POISON_REQUEST | TAKEOVERS_WITHOUT_PROGRESS | NUMERIC …

``code`` is the name of the gRPC status code; ``common.wire.status`` turns an error into a status with
google.rpc details and back, and is the only place that knows both sides. A retry delay is given only
where a retry can help.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

INVALID_REQUEST = "INVALID_REQUEST"
"""The reason where fields were refused and nothing more can be said of them together."""
POISON_REQUEST = "POISON_REQUEST"
"""The reason of a request that was set aside because workers died of it."""
DAMAGED_LOG = "DAMAGED_LOG"
UNDECODABLE_RECORD = "UNDECODABLE_RECORD"
"""The reasons of requests of which something that was stored is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A refused field: its path in the request, and what is wrong with the limit that applies."""

    field: str
    description: str


class HeadraceError(Exception):
    """Base of everything a caller can be told."""

    code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """``reason`` is a stable UPPER_SNAKE label; ``metadata`` are facts that belong to it."""
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s


class InvalidRequest(HeadraceError):
    """Fields were refused; names all of them at once."""

    code = "INVALID_ARGUMENT"

    def __init__(
        self,
        violations: Sequence[FieldViolation],
        *,
        reason: str = INVALID_REQUEST,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """``violations`` must not be empty."""
        assert violations
        fields = "; ".join(f"{v.field}: {v.description}" for v in violations[:8])
        more = len(violations) - 8
        super().__init__(
            fields + (f"; and {more} more" if more > 0 else ""), reason=reason, metadata=metadata
        )
        self.violations = tuple(violations)


class NotImplementedYet(HeadraceError):
    """A valid field whose feature this version does not have."""

    code = "UNIMPLEMENTED"

    def __init__(self, fields: Sequence[str]) -> None:
        """``fields`` are the paths of the fields."""
        super().__init__(
            f"not implemented yet: {', '.join(fields)}",
            reason="FIELD_NOT_IMPLEMENTED",
            metadata={"fields": ",".join(fields)},
        )
        self.fields = tuple(fields)


class NotFound(HeadraceError):
    """The named thing does not exist."""

    code = "NOT_FOUND"


class Unauthenticated(HeadraceError):
    """Nobody knows who calls."""

    code = "UNAUTHENTICATED"


class PermissionDenied(HeadraceError):
    """The caller is known, and may not do this."""

    code = "PERMISSION_DENIED"


class QuotaExceeded(HeadraceError):
    """A limit of the tenant is reached; ``subject`` and ``limit`` say whose and which."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(
        self,
        message: str,
        *,
        subject: str,
        limit: str,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Without ``retry_after_s`` no retry helps: the request is larger than the limit itself."""
        super().__init__(
            message,
            reason="QUOTA_EXCEEDED",
            metadata={"limit": limit, **(metadata or {})},
            retry_after_s=retry_after_s,
        )
        self.subject = subject
        self.limit = limit


class AlreadyExists(HeadraceError):
    """The key is taken by something else."""

    code = "ALREADY_EXISTS"


class QueueFull(HeadraceError):
    """Admission refused: a bound of the queue is reached."""

    code = "RESOURCE_EXHAUSTED"


class Unavailable(HeadraceError):
    """Not now; try again."""

    code = "UNAVAILABLE"


class DeadlineExceeded(HeadraceError):
    """The deadline passed, in the stage named by ``metadata['stage']``."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(HeadraceError):
    """The request was cancelled."""

    code = "CANCELLED"


class Aborted(HeadraceError):
    """Given up for how the caller takes its answer; the request itself was in order."""

    code = "ABORTED"


class InternalFailure(HeadraceError):
    """The request failed on our side; repeating it unchanged would fail again."""

    code = "INTERNAL"
