"""What followers do to a request: follow, leave, cancel, look. Any gateway may, and a leader for a lost gateway."""

from collections.abc import Mapping
from dataclasses import dataclass

from common import keys
from common.domain import RequestId
from common.request_status import RequestStatus
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script


@dataclass(frozen=True, slots=True)
class Record:
    """A request's record as followers see it; absent bytes are empty. Times: Unix ms by the partition's node."""

    status: RequestStatus
    epoch: int
    tenant: str
    priority: str
    log: str
    start: str
    admitted_ms: int
    deadline_ms: int
    prompt_tokens: int
    attempts: int
    worker_id: str
    cancel: str
    body: bytes
    checkpoint: bytes
    terminal: bytes


async def follow(
    node: Node, request_id: RequestId, follower: str, *, bound_s: float
) -> Record | None:
    """Join the request's followers (named ``<gateway id>:<unique>``) and read its record; None: no such request.

    A request that has ended is only read.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    answer = await run_script(
        node,
        ScriptCall("follow", [keys.record(request_id)], [follower, follower.partition(":")[0]]),
        bound_s=bound_s,
    )
    if answer == [b"missing"]:
        return None
    pairs = iter(answer)
    return _record({_key(key): value for key, value in zip(pairs, pairs, strict=True)})


async def read_record(
    node: Node, request_id: RequestId, *, bound_s: float | None
) -> Record | None:
    """Read the record without following; None: no such request.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    fields = await node.call(
        lambda client: client.hgetall(keys.record(request_id)), bound_s=bound_s
    )
    opened = {_key(key): node.vault.open(value) for key, value in fields.items()}
    return _record(opened) if opened else None


async def read_status(
    node: Node, request_id: RequestId, *, bound_s: float | None
) -> RequestStatus | None:
    """The status alone, without the body that a record may hold; None: no such request.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    value = await node.call(
        lambda client: client.hget(keys.record(request_id), "status"), bound_s=bound_s
    )
    return None if value is None else RequestStatus(value.decode())


async def leave(
    node: Node, request_id: RequestId, follower: str, *, grace_ms: int, bound_s: float | None
) -> str:
    """Leave the request: ``follower`` is a full name, or the prefix ``<gateway id>:`` of a lost gateway.

    When nobody is left the request is cancelled after ``grace_ms`` or its own longer grace. Answers the script's
    word: missing, ended, followed, abandoned, cancelling.
    """
    answer = await run_script(
        node,
        ScriptCall(
            "leave",
            [keys.record(request_id), keys.wake(request_id.partition)],
            [str(request_id), follower, grace_ms, keys.WAKE_TTL_MS],
        ),
        bound_s=bound_s,
    )
    return decoded(answer)[0]


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """What a cancellation found; ``is_cancelling`` is False when the request had ended."""

    status: RequestStatus
    is_cancelling: bool


def cancel_call(request_id: RequestId, reason: str) -> ScriptCall:
    """What `cancel` asks Redis to do."""
    return ScriptCall(
        "cancel",
        [keys.record(request_id), keys.wake(request_id.partition)],
        [str(request_id), reason, keys.WAKE_TTL_MS],
    )


async def cancel(
    node: Node, request_id: RequestId, reason: str, *, bound_s: float | None
) -> CancelOutcome | None:
    """Flag a request as cancelled and wake its leader; None: no such request. Repeating it is harmless.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    answer = decoded(await run_script(node, cancel_call(request_id, reason), bound_s=bound_s))
    if answer[0] == "missing":
        return None
    return CancelOutcome(RequestStatus(answer[1]), answer[0] == "cancelling")


def _key(name: bytes | int) -> str:
    assert isinstance(name, bytes)
    return name.decode()


def _record(fields: Mapping[str, bytes | int]) -> Record:
    raw = {name: value for name, value in fields.items() if isinstance(value, bytes)}

    def text(name: str) -> str:
        return raw.get(name, b"").decode()

    def number(name: str) -> int:
        return int(raw.get(name) or 0)

    return Record(
        status=RequestStatus(text("status")),
        epoch=number("epoch"),
        tenant=text("tenant"),
        priority=text("class"),
        log=text("log"),
        start=text("start"),
        admitted_ms=number("admitted_ms"),
        deadline_ms=number("deadline_ms"),
        prompt_tokens=number("tokens"),
        attempts=number("attempts"),
        worker_id=text("worker"),
        cancel=text("cancel"),
        body=raw.get("body", b""),
        checkpoint=raw.get("checkpoint", b""),
        terminal=raw.get("term", b""),
    )
