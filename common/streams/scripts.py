"""Calls the Lua scripts of ``scripts/`` by name, singly or many in one round trip.

A node that does not know a script (restart, fail-over, flush) is taught all of them and the calls are repeated:
every script is safe to repeat. All at once, and also before the first call of a process: if a node knew some
scripts only (those of an older version), calls of one batch could overtake one another.

In a cluster the keys of one call are of one slot; calls of several slots run side by side, those of one slot in
their order.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import redis.exceptions

from common.streams.connections import RedisClient, primaries
from common.streams.node import Node
from common.streams.transient import is_transient
from common.streams.vault import Sealed, Vault

Value = str | bytes | int | Sealed
Command = tuple[Any, ...]

_SOURCES = {
    path.name.removesuffix(".lua"): path.read_text()
    for path in (files("common.streams") / "scripts").iterdir()
    if path.name.endswith(".lua")
}
_DIGESTS = {
    name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    for name, source in _SOURCES.items()
}


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call: name of the file without its ending, keys, arguments."""

    name: str
    keys: Sequence[str]
    arguments: Sequence[Value]


async def run_script(
    node: Node, call: ScriptCall, *, bound_s: float | None = None
) -> list[bytes | int]:
    """The script's answer; scripts that answer with one value give a list of one."""
    return (await run_scripts(node, [call], bound_s=bound_s))[0]


async def run_scripts(
    node: Node, calls: Sequence[ScriptCall], *, bound_s: float | None = None
) -> list[list[bytes | int]]:
    """The scripts' answers in order, in one round trip for each slot. Only each script is atomic, not all."""

    async def operation(client: RedisClient) -> list[list[bytes | int]]:
        if not node.is_taught:
            await _teach(client)
            node.is_taught = True
        try:
            answers = await _send(client, commands)
        except redis.exceptions.NoScriptError:
            await _teach(client)
            answers = await _send(client, commands)
        return [answer if isinstance(answer, list) else [answer] for answer in answers]

    if not calls:
        return []
    # Once for all repetitions: what is repeated has the same bytes.
    commands = [_command(call, node.vault) for call in calls]
    answers = await node.call(operation, bound_s=bound_s)
    return [node.vault.open_all(answer) for answer in answers]


def _command(call: ScriptCall, vault: Vault) -> Command:
    """The words of one call, as Redis gets them."""
    arguments = [
        vault.seal(argument.content) if type(argument) is Sealed else argument
        for argument in call.arguments
    ]
    return ("EVALSHA", _DIGESTS[call.name], len(call.keys), *call.keys, *arguments)


def script_source(name: str) -> str:
    """The Lua text of a script."""
    return _SOURCES[name]


def script_digest(name: str) -> str:
    """The name under which Redis knows a script."""
    return _DIGESTS[name]


async def _teach(client: RedisClient) -> None:
    """Load all scripts everywhere: a slot on the move is served by a node that is not its owner yet."""
    answers = await asyncio.gather(
        *(_load(node) for node in await primaries(client)), return_exceptions=True
    )
    for answer in answers:
        # A node that is away concerns only the calls for it; they will notice.
        if isinstance(answer, BaseException) and not is_transient(answer):
            raise answer


async def _load(node: RedisClient) -> None:
    pipeline = node.pipeline(transaction=False)
    for source in _SOURCES.values():
        pipeline.script_load(source)
    await pipeline.execute()


async def _send(client: RedisClient, commands: Sequence[Command]) -> list[Any]:
    # Not by the client's own ``evalsha``: on the way of every token its layers cost as much as the packing.
    if len(commands) == 1:
        return [await client.execute_command(*commands[0])]
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute()
