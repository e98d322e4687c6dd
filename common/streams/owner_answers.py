"""What the scripts of ``ownership`` answer, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from common.request_status import RequestStatus
from common.streams.node import decoded

RawAnswer = Sequence[bytes | int]


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no record: it expired, or Redis lost it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another scheduler has taken the request."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A terminal record exists already. ``log`` is known when the request was to be owned."""

    status: RequestStatus
    log: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The cancel flag is set."""

    reason: str


@dataclass(frozen=True, slots=True)
class Owned:
    """Taken: what the record holds. Times by the partition's node, Unix milliseconds.

    ``fingerprint`` names the numerics it was dispatched to last; '' if it never was. ``stalls`` counts the takeovers
    that found it running with no more tokens than before, this one included until its log says otherwise.
    """

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
    fingerprint: str
    stalls: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Dispatched: the body for the worker, and how many dispatches there were, this one included."""

    body: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class Started:
    """Owned under epoch 1 and dispatched for the first time, at ``now_ms`` by the partition's node (Unix)."""

    now_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class NotNew:
    """The request has a past, or is to be cancelled: it has to be owned first. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write is in the record."""


@dataclass(frozen=True, slots=True)
class FollowedFrom:
    """It goes on, and clients follow it through ``gateways`` beside the one that its log belongs to."""

    gateways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unworkable:
    """The script failed on this record: its content is damaged, and no repetition mends that."""

    error: str


Refusal = Ended | Lost | Missing


def refusal_of(answer: RawAnswer) -> Refusal | None:
    """Why the write was not made, if it was not."""
    match decoded(answer[:1])[0]:
        case "missing":
            return Missing()
        case "lost":
            return Lost()
        case "ended":
            words = decoded(answer)
            return Ended(RequestStatus(words[1]), *words[2:])
        case _:
            return None


def read_written(answer: RawAnswer) -> Done | Refusal:
    """Answer of a plain write."""
    refusal = refusal_of(answer)
    return Done() if refusal is None else refusal


def read_owned(answer: RawAnswer) -> Owned | Ended | Missing:
    """Answer of ``own``."""
    refusal = refusal_of(answer)
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
        fingerprint=text[14],
        stalls=int(text[15] or 0),
    )


def read_taken(answer: RawAnswer) -> Taken | CancelRequested | Refusal:
    """Answer of ``take``."""
    refusal = refusal_of(answer)
    if refusal is not None:
        return refusal
    if answer[0] == b"cancelled":
        return CancelRequested(decoded(answer)[1])
    return Taken(cast("bytes", answer[1] or b""), int(answer[2]))


def read_started(answer: RawAnswer) -> Started | NotNew:
    """Answer of ``start``."""
    if answer[0] != b"started":
        return NotNew()
    return Started(int(answer[1]), cast("bytes", answer[2] or b""))


def read_heartbeat(word: str) -> Done | FollowedFrom | CancelRequested | Refusal:
    """Answer of ``heartbeat`` for one request."""
    if word.startswith("cancel:"):
        return CancelRequested(word.removeprefix("cancel:"))
    if word.startswith("ended:"):
        return Ended(RequestStatus(word.removeprefix("ended:")))
    if word.startswith("ok:"):
        return FollowedFrom(tuple(word.removeprefix("ok:").split()))
    states: dict[str, Done | Lost | Missing] = {"ok": Done(), "lost": Lost(), "missing": Missing()}
    return states[word]
