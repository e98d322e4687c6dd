"""Where one request's time went, as its record says: no prompt and no answer is part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common.domain import RequestId, Usage
from common.errors import Unavailable
from common.request_status import RequestStatus
from common.streams.dead_letters import find_letter
from common.streams.following import Record, read_record
from common.streams.node import Node
from common.wire.records import TerminalRecord, UndecodableError
from common.wire.request import parse_body
from gateway.lookup import request_not_found
from gateway.queue_views import QueueViews
from gateway.relay.history import checkpoint_of, result_of, unreadable
from gateway.request_view import waiting_for

_BOUND_S = 2.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a request's life, seconds since it was accepted."""

    name: str
    begin_s: float
    end_s: float

    def shown(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"name": self.name, "begin_s": self.begin_s, "end_s": self.end_s}


class Timelines:
    """Looks requests up for operators, whosever they are."""

    def __init__(self, node: Node, views: QueueViews) -> None:
        """``views`` say what a waiting request waits for, and what time it is at its partition."""
        self._node = node
        self._views = views

    async def of(self, text: str) -> dict[str, Any]:
        """A request's timeline.

        Raises:
            NotFound: there is no such request any more.
            Unavailable: Redis cannot be reached.
        """
        request_id = RequestId.parse(text)
        if request_id is None:
            raise request_not_found(text)
        record = await read_record(self._node, request_id, bound_s=_BOUND_S)
        if record is None:
            raise request_not_found(text)
        status = self._views.view(request_id.partition)
        now_ms = record.admitted_ms if status is None else status.observed_unix_ms
        shown = timeline_of(record, now_ms)
        shown |= {"request_id": str(request_id), "model": request_id.partition.model}
        if record.status is RequestStatus.QUEUED:
            shown["waiting_for"] = waiting_for(request_id, status)
        shown["history"] = await self._history(request_id, record)
        return shown

    async def _history(self, request_id: RequestId, record: Record) -> list[dict[str, Any]]:
        """The attempts of a request that was set aside; of others only their number is kept."""
        if record.status is not RequestStatus.DEAD:
            return []
        try:
            letter = await find_letter(self._node, request_id, bound_s=_BOUND_S)
        except Unavailable:
            return []
        return [
            {
                "worker_id": attempt.worker_id,
                "after_s": (attempt.dispatched_ms - record.admitted_ms) / 1000,
                "tokens": attempt.tokens,
                "outcome": attempt.outcome,
            }
            for attempt in ([] if letter is None else letter.attempts)
        ]


def timeline_of(record: Record, now_ms: int) -> dict[str, Any]:
    """What a record says of a request at a moment.

    Raises:
        InternalFailure: what is stored cannot be read.
    """
    result = result_of(record)
    if result is None:
        progress = checkpoint_of(record)[0]
        usage = progress.usage(record.prompt_tokens)
        after_s = None if progress.prompt is None else progress.prompt.after_s
        age_s = max(0.0, (now_ms - record.admitted_ms) / 1000)
        stages = _open_stages(record.status, after_s, age_s)
    else:
        usage, stages = result.usage, _ended_stages(result)
    failure = None if result is None else result.failure
    return {
        "status": record.status.value,
        "tenant": record.tenant,
        "class": record.priority,
        "accepted_ms": record.admitted_ms,
        "deadline_ms": record.deadline_ms,
        "worker_id": record.worker_id if result is None else result.worker_id,
        "attempts": record.attempts,
        "cancel": record.cancel,
        "failure": "" if failure is None else f"{failure.reason}: {failure.message}",
        "waiting_for": "",
        "trace_id": _trace_id(record),
        "usage": _usage(usage),
        "stages": [stage.shown() for stage in stages],
    }


def _trace_id(record: Record) -> str:
    """While the request is open; its body goes with its end, and the log line of that has the trace."""
    if not record.body:
        return ""
    try:
        return parse_body(record.body).traceparent[3:35]
    except UndecodableError as error:
        raise unreadable(error) from error


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_prompt_tokens": usage.cached_prompt_tokens,
    }


def _ended_stages(result: TerminalRecord) -> Sequence[Stage]:
    times = result.timings
    if not times.attempts:
        return [Stage("queue", 0.0, times.total_s)]
    stages = [Stage("queue", 0.0, times.queue_s)]
    if not times.time_to_first_token_s:
        return [*stages, Stage("prefill", times.queue_s, times.total_s)]
    return [
        *stages,
        Stage("prefill", times.queue_s, times.time_to_first_token_s),
        Stage("decode", times.time_to_first_token_s, times.total_s),
    ]


def _open_stages(
    status: RequestStatus, first_token_s: float | None, age_s: float
) -> Sequence[Stage]:
    """What is certain of a request that runs: its record holds no more than the last checkpoint."""
    if first_token_s is not None:
        begin_s = min(first_token_s, age_s)
        return [Stage("queue and prefill", 0.0, begin_s), Stage("decode", begin_s, age_s)]
    name = "queue" if status is RequestStatus.QUEUED else "queue and prefill"
    return [Stage(name, 0.0, age_s)]
