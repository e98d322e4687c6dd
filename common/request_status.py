"""The status of a request and the moves it may make; `LedRequest.move` and the scripts make them, the former checked here.

    QUEUED ──dispatch──▶ RUNNING ──▶ FINISHED | CANCELLED | EXPIRED | FAILED | DEAD
      ▲  │                  │
      │  └──────────────────┼──▶ CANCELLED | EXPIRED | FAILED | DEAD   (ended without running)
      └──pre-emption, loss──┘

The Lua scripts in ``common/streams/scripts`` repeat the rule that matters under races (a final status
never changes); this table is what the services decide by. ``QUEUED -> FINISHED`` exists for takeover:
a logged finish outranks everything, even if the request was put back into the queue meanwhile.
"""

from enum import StrEnum

from common.domain import FinishReason


class RequestStatus(StrEnum):
    """Where a request is; it is in exactly one."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    DEAD = "dead"

    @property
    def is_final(self) -> bool:
        """Whether nothing comes after it."""
        return not _MOVES[self]


_ENDS = frozenset(
    {
        RequestStatus.FINISHED,
        RequestStatus.CANCELLED,
        RequestStatus.EXPIRED,
        RequestStatus.FAILED,
        RequestStatus.DEAD,
    }
)
_MOVES: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.QUEUED: _ENDS | {RequestStatus.RUNNING},
    RequestStatus.RUNNING: _ENDS | {RequestStatus.QUEUED},
    **{status: frozenset() for status in _ENDS},
}

_STATUS_OF_FINISH = {
    FinishReason.STOP: RequestStatus.FINISHED,
    FinishReason.LENGTH: RequestStatus.FINISHED,
    FinishReason.CONTENT_FILTER: RequestStatus.FINISHED,
    FinishReason.CANCELLED: RequestStatus.CANCELLED,
    FinishReason.DEADLINE: RequestStatus.EXPIRED,
    FinishReason.ERROR: RequestStatus.FAILED,
}


def transition(current: RequestStatus, target: RequestStatus) -> RequestStatus:
    """``target``, if the move is allowed.

    Raises:
        AssertionError: the move is not in the table, which is a bug of ours.
    """
    assert target in _MOVES[current], f"{current} -> {target}"
    return target


def status_of_finish(reason: FinishReason) -> RequestStatus:
    """The final status of a request whose last choice ended for ``reason``."""
    return _STATUS_OF_FINISH[reason]
