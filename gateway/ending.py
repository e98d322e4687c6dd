"""What the end of a request means for its caller: a status, and figures in the trailing metadata."""

from common.domain import FinishReason, Usage
from common.errors import Cancelled, HeadraceError, InternalFailure, Unavailable
from common.records import FinishRecord, Timings
from common.wire.status import error_of
from gateway.relay.follower import deadline_exceeded
from gateway.relay.mailbox import Mailbox

_GOOD = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER})


def error_at_end(finish: FinishRecord, mailbox: Mailbox) -> HeadraceError | None:
    """The status that a stream ends with behind its last event; None for OK."""
    if finish.reason in _GOOD:
        return None
    if finish.failure is not None:
        error = error_of(finish.failure)
        if isinstance(error, Unavailable):
            error.retry_after_s = 1.0  # not stored with a failure, and the same for all of them
        return error
    if finish.reason is FinishReason.CANCELLED:
        return Cancelled("the request was cancelled", reason="CANCELLED")
    if finish.reason is FinishReason.DEADLINE:
        return deadline_exceeded(mailbox)
    return InternalFailure("the request failed", reason="ENGINE_ERROR")


def trailing_metadata(usage: Usage, timings: Timings | None) -> tuple[tuple[str, str], ...]:
    """Usage and timings for a client that reads no more messages, or never had one."""
    pairs = [
        ("x-usage-prompt-tokens", str(usage.prompt_tokens)),
        ("x-usage-completion-tokens", str(usage.completion_tokens)),
        ("x-usage-cached-prompt-tokens", str(usage.cached_prompt_tokens)),
    ]
    if usage.from_response_cache:
        pairs.append(("x-response-cache", "hit"))
    if timings is not None:
        pairs.append(("x-queue-time-ms", f"{timings.queue_s * 1000:.3f}"))
        pairs.append(("x-attempts", str(timings.attempts)))
    return tuple(pairs)
