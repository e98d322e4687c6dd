"""Admission: the one round trip after which a request is safe (script ``admit``)."""

from collections.abc import Sequence
from dataclasses import dataclass

from common import keys
from common.domain import Priority, RequestId
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script
from common.streams.vault import Sealed


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Most waiting requests and prompt tokens of one class in one partition."""

    max_requests: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Submission:
    """Everything that admission stores. ``start`` is the gateway's read position in its own log, ``log``."""

    request_id: RequestId
    priority: Priority
    tenant: str
    prompt_tokens: int
    budget_ms: int
    log: str
    start: str
    follower: str
    header: bytes
    body: bytes
    resume_grace_ms: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Accepted: times by the partition's node, Unix milliseconds.

    ``is_followed`` is False where another caller had admitted the same id before, so that this one has to join.
    """

    admitted_ms: int
    deadline_ms: int
    is_followed: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A bound is reached; so much waits."""

    requests: int
    tokens: int


def admission_call(submission: Submission, bounds: QueueBounds) -> ScriptCall:
    """The call that admits a request or refuses it. Repeating it with the same id is harmless."""
    partition = submission.request_id.partition
    return ScriptCall(
        "admit",
        [
            keys.record(submission.request_id),
            keys.inbox(partition, submission.priority),
            keys.queued(partition),
        ],
        [
            str(submission.request_id),
            submission.priority.name.lower(),
            submission.prompt_tokens,
            bounds.max_requests,
            bounds.max_tokens,
            min(submission.budget_ms, keys.LONGEST_LIFE_MS),
            keys.OPEN_RECORD_TTL_MS,
            submission.log,
            submission.start,
            submission.follower,
            submission.tenant,
            submission.header,
            Sealed(submission.body),
            submission.resume_grace_ms,
        ],
    )


def read_admission(answer: Sequence[bytes | int]) -> Admitted | Refused:
    """What the call answered."""
    words = decoded(answer)
    if words[0] == "full":
        return Refused(int(words[1]), int(words[2]))
    return Admitted(int(words[1]), int(words[2]), words[3] == "1")


async def admit(
    node: Node, submission: Submission, bounds: QueueBounds, *, bound_s: float
) -> Admitted | Refused:
    """Make the call by itself.

    Raises:
        Unavailable: no definite answer within ``bound_s``: it may have been admitted all the same.
    """
    return read_admission(
        await run_script(node, admission_call(submission, bounds), bound_s=bound_s)
    )
