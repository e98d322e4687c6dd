"""Why requests end badly, as it is stored and as callers are told."""

from common.domain import FinishReason
from common.errors import (
    DAMAGED_LOG,
    POISON_REQUEST,
    UNDECODABLE_RECORD,
    Cancelled,
    DeadlineExceeded,
    InternalFailure,
    Unavailable,
)
from common.records import Failure, failure_of

QUARANTINE_LOSSES = 2
"""After so many workers died while running a request, it runs alone: whoever dies then died of it."""

MAX_WORKER_LOSSES = 3
"""After so many workers died while running a request, the request is taken for the reason."""

MAX_STALLS = 10
"""So many schedulers may be lost while a request runs without a token more; then it is taken for the reason."""


def failure_of_end(reason: FinishReason, *, stage: str, cause: str = "") -> Failure | None:
    """What a finish for ``reason`` tells the caller when nobody said more; None for a good end."""
    match reason:
        case FinishReason.CANCELLED:
            metadata = {"cause": cause} if cause else {}
            message = f"the request was cancelled{f': {cause}' if cause else ''}"
            return failure_of(Cancelled(message, reason="CANCELLED", metadata=metadata))
        case FinishReason.DEADLINE:
            return failure_of(
                DeadlineExceeded(
                    f"the deadline cannot be made: {cause}"
                    if cause
                    else f"the deadline passed ({stage})",
                    reason="DEADLINE_EXCEEDED",
                    metadata={"stage": stage},
                )
            )
        case FinishReason.ERROR:
            return failure_of(InternalFailure("the engine failed", reason="ENGINE_ERROR"))
        case _:
            return None


def undecodable(what: str) -> Failure:
    """Stored bytes of the request do not decode."""
    return failure_of(
        InternalFailure(f"the stored {what} cannot be read", reason=UNDECODABLE_RECORD)
    )


def damaged_log() -> Failure:
    """Tokens are missing in the log: going on would change what was delivered."""
    return failure_of(InternalFailure("the reply log has a gap", reason=DAMAGED_LOG))


def poison() -> Failure:
    """Too many workers died while running it."""
    return failure_of(
        InternalFailure(
            f"{MAX_WORKER_LOSSES} workers were lost while running the request",
            reason=POISON_REQUEST,
        )
    )


def stalled() -> Failure:
    """It was taken over again and again and got no further."""
    return failure_of(
        InternalFailure(
            f"{MAX_STALLS} schedulers were lost while the request ran, and it got no further",
            reason="TAKEOVERS_WITHOUT_PROGRESS",
        )
    )


def no_equal_worker() -> Failure:
    """It has started, and no worker can go on with the same numerics."""
    return failure_of(
        Unavailable(
            "no worker with equal numerics to go on with the request", reason="NO_EQUAL_WORKER"
        )
    )


def revision_left(revision: str) -> Failure:
    """All workers of its model revision have left, and others serve the model."""
    return failure_of(
        Unavailable(
            f"no worker serves revision {revision} any more; asked again, the request gets one that is served",
            reason="REVISION_LEFT",
            metadata={"model_revision": revision},
        )
    )


def no_worker() -> Failure:
    """Its caller did not want to wait for a worker, and there is none."""
    return failure_of(Unavailable("the model has no worker", reason="NO_WORKER"))
