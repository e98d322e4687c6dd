"""What the owner of a request does to its record. Every write is a compare-and-set on the epoch (DESIGN §4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from common import keys
from common.domain import Partition, Priority, RequestId
from common.request_status import RequestStatus
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script, run_scripts


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no record: it expired, or Redis lost it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another scheduler has taken the request."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A terminal record exists already."""

    status: RequestStatus


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The cancel flag is set."""

    reason: str


@dataclass(frozen=True, slots=True)
class Owned:
    """Taken: what the record holds. Times by the partition's node, Unix milliseconds."""

    epoch: int
    status_before: RequestStatus
    now_ms: int
    cancel: str
    checkpoint: bytes
    log: str
    start: str
    worker_losses: int
    attempts: int
    admitted_ms: int
    deadline_ms: int
    resume_grace_ms: int
    first_dispatch_ms: int | None


@dataclass(frozen=True, slots=True)
class Taken:
    """Dispatched: the body for the worker, and how many dispatches there were, this one included."""

    body: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class Done:
    """The write is in the record."""


async def own(
    node: Node, owner: str, entries: Sequence[tuple[RequestId, Priority, str]]
) -> list[Owned | Ended | Missing]:
    """Take entries (request, class, entry id), new ones or such whose owner is gone. Raises each epoch."""
    answers = await run_scripts(
        node,
        [
            ScriptCall(
                "own",
                [
                    keys.record(request_id),
                    keys.inbox(request_id.partition, priority),
                    keys.queued(request_id.partition),
                ],
                [keys.GROUP, owner, entry_id],
            )
            for request_id, priority, entry_id in entries
        ],
    )
    return [_owned(answer) for answer in answers]


async def take(
    node: Node, requests: Sequence[tuple[RequestId, int]], worker_id: str
) -> list[Taken | CancelRequested | Ended | Lost | Missing]:
    """Dispatch requests (id, epoch): QUEUED to RUNNING, and get their bodies."""
    answers = await run_scripts(
        node,
        [
            ScriptCall(
                "take",
                [keys.record(request_id), keys.queued(request_id.partition)],
                [epoch, worker_id],
            )
            for request_id, epoch in requests
        ],
    )
    return [_taken(answer) for answer in answers]


async def requeue(
    node: Node, request_id: RequestId, epoch: int, worker_losses: int
) -> Done | Ended | Lost | Missing:
    """RUNNING back to QUEUED, with the absolute number of worker losses."""
    return await _write(
        node,
        ScriptCall(
            "requeue",
            [keys.record(request_id), keys.queued(request_id.partition)],
            [epoch, worker_losses],
        ),
    )


async def store_checkpoint(
    node: Node, request_id: RequestId, epoch: int, checkpoint: bytes
) -> Done | Ended | Lost | Missing:
    """Store what is logged so far."""
    return await _write(
        node, ScriptCall("checkpoint", [keys.record(request_id)], [epoch, checkpoint])
    )


async def finish(
    node: Node, request_id: RequestId, epoch: int, status: RequestStatus, terminal: bytes
) -> Done | Ended | Lost | Missing:
    """Write the terminal record. ``Done`` again if it is already mine."""
    assert status.is_final
    return await _write(
        node,
        ScriptCall(
            "finish",
            [keys.record(request_id), keys.queued(request_id.partition)],
            [epoch, status.value, terminal, keys.RESULT_TTL_MS],
        ),
    )


async def heartbeat(
    node: Node,
    partition: Partition,
    owner: str,
    entries: Sequence[tuple[RequestId, Priority, str, int]],
) -> list[Done | CancelRequested | Ended | Lost | Missing]:
    """Refresh entries (request, class, entry id, epoch); learn which are lost and which are to be cancelled."""
    calls, positions = _heartbeat_calls(partition, owner, entries)
    answers = await run_scripts(node, calls)
    result: list[Done | CancelRequested | Ended | Lost | Missing] = [Missing()] * len(entries)
    for indices, answer in zip(positions, answers, strict=True):
        for index, text in zip(indices, decoded(answer), strict=True):
            result[index] = _heartbeat_answer(text)
    return result


def _heartbeat_calls(
    partition: Partition,
    owner: str,
    entries: Sequence[tuple[RequestId, Priority, str, int]],
) -> tuple[list[ScriptCall], list[list[int]]]:
    chunk = 200  # bounds how long one script keeps Redis busy
    by_class: dict[Priority, list[int]] = {}
    for index, (_, priority, _, _) in enumerate(entries):
        by_class.setdefault(priority, []).append(index)
    calls, positions = [], []
    for priority, indices in by_class.items():
        for start in range(0, len(indices), chunk):
            part = indices[start : start + chunk]
            facts = [fact for i in part for fact in (entries[i][3], entries[i][2])]
            record_keys = [keys.record(entries[i][0]) for i in part]
            calls.append(
                ScriptCall(
                    "heartbeat",
                    [keys.inbox(partition, priority), *record_keys],
                    [keys.GROUP, owner, *facts],
                )
            )
            positions.append(part)
    return calls, positions


def _heartbeat_answer(text: str) -> Done | CancelRequested | Ended | Lost | Missing:
    if text.startswith("cancel:"):
        return CancelRequested(text.removeprefix("cancel:"))
    if text.startswith("ended:"):
        return Ended(RequestStatus(text.removeprefix("ended:")))
    states: dict[str, Done | Lost | Missing] = {"ok": Done(), "lost": Lost(), "missing": Missing()}
    return states[text]


async def _write(node: Node, call: ScriptCall) -> Done | Ended | Lost | Missing:
    answer = await run_script(node, call)
    refusal = _refusal(answer)
    return Done() if refusal is None else refusal


def _refusal(answer: Sequence[bytes | int]) -> Ended | Lost | Missing | None:
    match decoded(answer[:1])[0]:
        case "missing":
            return Missing()
        case "lost":
            return Lost()
        case "ended":
            return Ended(RequestStatus(decoded(answer)[1]))
        case _:
            return None


def _owned(answer: Sequence[bytes | int]) -> Owned | Ended | Missing:
    refusal = _refusal(answer)
    if refusal is not None:
        assert not isinstance(refusal, Lost)
        return refusal
    checkpoint = cast("bytes", answer[5])
    text = decoded([*answer[:5], b"", *answer[6:]])
    return Owned(
        epoch=int(text[1]),
        status_before=RequestStatus(text[2]),
        now_ms=int(text[3]),
        cancel=text[4],
        checkpoint=checkpoint,
        log=text[6],
        start=text[7],
        worker_losses=int(text[8] or 0),
        attempts=int(text[9] or 0),
        admitted_ms=int(text[10]),
        deadline_ms=int(text[11]),
        resume_grace_ms=int(text[12] or 0),
        first_dispatch_ms=int(text[13]) if text[13] else None,
    )


def _taken(answer: Sequence[bytes | int]) -> Taken | CancelRequested | Ended | Lost | Missing:
    refusal = _refusal(answer)
    if refusal is not None:
        return refusal
    if answer[0] == b"cancelled":
        return CancelRequested(decoded(answer)[1])
    return Taken(cast("bytes", answer[1]), int(answer[2]))
