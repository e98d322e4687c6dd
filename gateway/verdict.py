"""What to do with a request whose idempotency key stands for an earlier one: a pure rule.

                      same body            other body
no record, admitted   free                 free            its result is gone
no record             admit                reused          claimed, and perhaps about to be admitted
cancelled, expired    free                 free            nobody has a result
finished, failed      attach (a replay)    reused
waiting, running      attach               reused
  … to be cancelled   wait                 wait            its end decides
"""

from enum import Enum, auto

from common.request_status import RequestStatus


class Verdict(Enum):
    """The next step."""

    FREE = auto()
    """The key may stand for a new request."""
    ADMIT = auto()
    """Admit the request under the id that the key has."""
    ATTACH = auto()
    """Follow the request, or replay its result."""
    WAIT = auto()
    """Look again when it has ended."""
    REUSED = auto()
    """Refuse."""


def verdict_on(
    status: RequestStatus | None, *, is_admitted: bool, is_cancelling: bool, is_same: bool
) -> Verdict:
    """``status`` is None where there is no record; ``is_admitted`` says that there was one."""
    if status is None and is_admitted:
        return Verdict.FREE
    if status in (RequestStatus.CANCELLED, RequestStatus.EXPIRED):
        return Verdict.FREE
    if status is not None and not status.is_final and is_cancelling:
        return Verdict.WAIT
    if not is_same:
        return Verdict.REUSED
    return Verdict.ADMIT if status is None else Verdict.ATTACH
