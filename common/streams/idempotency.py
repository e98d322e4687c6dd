"""What an idempotency key stands for: a request id, known before the request is admitted (docs/api.md says what callers get).

    claim ──▶ admit (in the partition's slot) ──▶ confirm
      └─────── refused ──▶ release

The key and the record lie in different slots, so no script sees both. Whoever dies in between leaves a claim without
a record: the next caller admits the request under the same id, which is harmless however often it is done.
"""

from dataclasses import dataclass

from common import keys
from common.domain import RequestId
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, Value, run_script


@dataclass(frozen=True, slots=True)
class KeyName:
    """A tenant's key."""

    tenant: str
    key: str

    @property
    def place(self) -> str:
        """Its key in Redis."""
        return keys.idempotency(self.tenant, self.key)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a key stands for. ``digest`` is that of the request's body.

    ``is_admitted`` False means that nobody knows: a missing record was then never admitted, or it is long gone.
    """

    request_id: RequestId
    digest: str
    is_admitted: bool


async def look(node: Node, name: KeyName, *, bound_s: float) -> Claim | None:
    """What the key stands for; None: nothing.

    Raises:
        Unavailable: no definite answer within ``bound_s``.
    """
    found = await node.call(
        lambda client: client.hmget(name.place, ["id", "digest", "admitted"]), bound_s=bound_s
    )
    return _claim_of(decoded(found)) if found[0] is not None else None


async def claim(
    node: Node,
    name: KeyName,
    request_id: RequestId,
    digest: str,
    *,
    replaces: RequestId | None = None,
    bound_s: float,
) -> Claim:
    """Claim the key for ``request_id``, or join the claim that stands under that name.

    A claim for ``replaces``, a request that has lost its key, does not stand.

    Raises:
        Unavailable: no definite answer within ``bound_s``; it may have been claimed all the same.
    """
    arguments: list[Value] = [
        str(request_id),
        digest,
        str(replaces or ""),
        keys.IDEMPOTENCY_TTL_MS,
    ]
    call = ScriptCall("claim_key", [name.place], arguments)
    return _claim_of(decoded(await run_script(node, call, bound_s=bound_s)))


async def confirm(
    node: Node, name: KeyName, request_id: RequestId, digest: str, *, bound_s: float | None
) -> None:
    """Say that the request was admitted. Repeating it is harmless."""
    arguments: list[Value] = [str(request_id), digest, keys.IDEMPOTENCY_TTL_MS]
    call = ScriptCall("confirm_key", [name.place], arguments)
    await run_script(node, call, bound_s=bound_s)


async def release(
    node: Node, name: KeyName, claimant: RequestId, *, bound_s: float | None
) -> None:
    """Withdraw the claim that was made with ``claimant``, who was refused. Repeating it is harmless."""
    call = ScriptCall("release_key", [name.place], [str(claimant)])
    await run_script(node, call, bound_s=bound_s)


def _claim_of(values: list[str]) -> Claim:
    request_id = RequestId.parse(values[0])
    assert request_id is not None, values  # only the script above writes it
    return Claim(request_id, values[1], values[2] == "1")
