"""What the owner of a request does to its record. Every write is a compare-and-set on the epoch (docs/delivery.md).

A write is made as a ``RecordStep``, so that the writes of one moment travel together; steps of one request are
applied in the order given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import redis.exceptions

from common import keys
from common.domain import Partition, Priority, RequestId
from common.request_status import RequestStatus
from common.streams.node import Node, decoded
from common.streams.owner_answers import (
    CancelRequested,
    Done,
    Ended,
    FollowedFrom,
    Lost,
    Missing,
    NotNew,
    Owned,
    RawAnswer,
    Started,
    Taken,
    Unworkable,
    read_heartbeat,
    read_owned,
    read_started,
    read_taken,
    read_written,
)
from common.streams.scripts import ScriptCall, run_scripts
from common.streams.vault import Sealed

__all__ = [
    "Answer",
    "CancelRequested",
    "Done",
    "Ended",
    "FollowedFrom",
    "Lost",
    "Missing",
    "NotNew",
    "Owned",
    "RecordStep",
    "Started",
    "Taken",
    "Unworkable",
    "checkpoint_step",
    "finish",
    "finish_step",
    "heartbeat",
    "own",
    "own_step",
    "requeue",
    "requeue_step",
    "run_steps",
    "start_step",
    "store_checkpoint",
    "take",
    "take_step",
]

Answer = (
    Owned
    | Taken
    | Started
    | NotNew
    | Done
    | FollowedFrom
    | CancelRequested
    | Ended
    | Lost
    | Missing
    | Unworkable
)

ATTEMPTS_TO_REMEMBER = 32
"""A request that is pre-empted again and again must not grow its record without end."""


@dataclass(frozen=True, slots=True)
class RecordStep:
    """One write to one record. Repeating it is harmless."""

    call: ScriptCall
    read: Callable[[RawAnswer], Answer]


def own_step(owner: str, request_id: RequestId, priority: Priority, entry_id: str) -> RecordStep:
    """Take an entry, a new one or one whose owner is gone; raises the epoch. Owned, Ended or Missing."""
    partition = request_id.partition
    return RecordStep(
        ScriptCall(
            "own",
            [keys.record(request_id), keys.inbox(partition, priority), keys.queued(partition)],
            [keys.GROUP, owner, entry_id, ATTEMPTS_TO_REMEMBER],
        ),
        read_owned,
    )


def take_step(request_id: RequestId, epoch: int, worker_id: str, fingerprint: str) -> RecordStep:
    """Dispatch: QUEUED to RUNNING, and get the body. Taken, CancelRequested, Ended, Lost or Missing."""
    return RecordStep(
        ScriptCall(
            "take",
            [keys.record(request_id), keys.queued(request_id.partition)],
            [epoch, worker_id, fingerprint],
        ),
        read_taken,
    )


def start_step(owner: str, request_id: RequestId, worker_id: str, fingerprint: str) -> RecordStep:
    """Own a new request under epoch 1 and dispatch it, in one write. Started or NotNew."""
    return RecordStep(
        ScriptCall(
            "start",
            [keys.record(request_id), keys.queued(request_id.partition)],
            [owner, worker_id, fingerprint],
        ),
        read_started,
    )


def requeue_step(
    request_id: RequestId, epoch: int, worker_losses: int, tokens: int = 0, outcome: str = ""
) -> RecordStep:
    """RUNNING back to QUEUED, with the absolute number of worker losses. Done, Ended, Lost or Missing.

    ``outcome`` says how the attempt ended that had logged ``tokens``; '' keeps no history of it.
    """
    return RecordStep(
        ScriptCall(
            "requeue",
            [keys.record(request_id), keys.queued(request_id.partition)],
            [epoch, worker_losses, tokens, outcome, ATTEMPTS_TO_REMEMBER],
        ),
        read_written,
    )


def checkpoint_step(
    request_id: RequestId, epoch: int, checkpoint: bytes, next_seq: int = 0
) -> RecordStep:
    """Store what is logged so far, up to ``next_seq``; an older one is Done and changes nothing.

    Done, Ended, Lost or Missing.
    """
    return RecordStep(
        ScriptCall("checkpoint", [keys.record(request_id)], [epoch, Sealed(checkpoint), next_seq]),
        read_written,
    )


def finish_step(
    request_id: RequestId, epoch: int, status: RequestStatus, terminal: bytes, reason: str = ""
) -> RecordStep:
    """Write the terminal record. Done (again, if it is already mine), Ended, Lost or Missing.

    With the status DEAD the request becomes a dead letter for ``reason`` in the same moment.
    """
    assert status.is_final
    partition = request_id.partition
    return RecordStep(
        ScriptCall(
            "finish",
            [keys.record(request_id), keys.queued(partition), keys.dead(partition)],
            [epoch, status.value, Sealed(terminal), keys.RESULT_TTL_MS, reason, str(request_id)],
        ),
        read_written,
    )


async def run_steps(
    node: Node, steps: Sequence[RecordStep], *, bound_s: float | None = None
) -> list[Answer]:
    """The steps' answers, in one round trip.

    A record that makes a script fail is ``Unworkable`` and harms no other.

    Raises:
        Unavailable: no definite answer within ``bound_s``: the same steps may be repeated.
    """
    try:
        answers = await run_scripts(node, [step.call for step in steps], bound_s=bound_s)
    except redis.exceptions.ResponseError as error:
        if len(steps) == 1:
            return [Unworkable(str(error))]
        return [
            answer for step in steps for answer in await run_steps(node, [step], bound_s=bound_s)
        ]
    return [step.read(answer) for step, answer in zip(steps, answers, strict=True)]


async def own(
    node: Node, owner: str, entries: Sequence[tuple[RequestId, Priority, str]]
) -> list[Answer]:
    """Take entries (request, class, entry id) in one round trip."""
    return await run_steps(node, [own_step(owner, *entry) for entry in entries])


async def take(
    node: Node, requests: Sequence[tuple[RequestId, int]], worker_id: str, fingerprint: str = ""
) -> list[Answer]:
    """Dispatch requests (id, epoch) in one round trip."""
    return await run_steps(
        node, [take_step(*request, worker_id, fingerprint) for request in requests]
    )


async def requeue(
    node: Node,
    request_id: RequestId,
    epoch: int,
    worker_losses: int,
    tokens: int = 0,
    outcome: str = "",
) -> Answer:
    """Put one request back."""
    step = requeue_step(request_id, epoch, worker_losses, tokens, outcome)
    return (await run_steps(node, [step]))[0]


async def store_checkpoint(
    node: Node, request_id: RequestId, epoch: int, checkpoint: bytes, next_seq: int = 0
) -> Answer:
    """Store one checkpoint."""
    step = checkpoint_step(request_id, epoch, checkpoint, next_seq)
    return (await run_steps(node, [step]))[0]


async def finish(
    node: Node,
    request_id: RequestId,
    epoch: int,
    status: RequestStatus,
    terminal: bytes,
    reason: str = "",
) -> Answer:
    """End one request."""
    step = finish_step(request_id, epoch, status, terminal, reason)
    return (await run_steps(node, [step]))[0]


async def heartbeat(
    node: Node,
    partition: Partition,
    owner: str,
    entries: Sequence[tuple[RequestId, Priority, str, int]],
    *,
    bound_s: float | None = None,
) -> list[Answer]:
    """Refresh entries (request, class, entry id, epoch); learn which are lost and which are to be cancelled.

    Done, or FollowedFrom, for what goes on.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    calls, positions = _heartbeat_calls(partition, owner, entries)
    try:
        answers = await run_scripts(node, calls, bound_s=bound_s)
    except redis.exceptions.ResponseError as error:
        if len(entries) == 1:
            return [Unworkable(str(error))]
        return [
            answer
            for entry in entries
            for answer in await heartbeat(node, partition, owner, [entry], bound_s=bound_s)
        ]
    result: list[Answer] = [Missing()] * len(entries)
    for indices, answer in zip(positions, answers, strict=True):
        for index, word in zip(indices, decoded(answer), strict=True):
            result[index] = read_heartbeat(word)
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
