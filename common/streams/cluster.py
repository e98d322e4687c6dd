"""A client for a Redis Cluster: sends each command to the node that serves its key, and follows redirections.

redis-py's own cluster client is not used: after an ASK it may send the command on another connection than the
ASKING, which the node refuses; it fails on a redirection to a node it does not know yet; and it queues the
commands of a transaction by running a second event loop in a thread. The connections are redis-py's.

Commands of one slot stay in their order on one connection; different slots run side by side. A command without
a key (PING, TIME, SCRIPT LOAD, …) goes to every primary, and the first one's answer counts.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import redis.exceptions
from redis.commands import AsyncCoreCommands
from redis.crc import key_slot

from common.streams.addresses import Host
from common.streams.slot_map import SlotMap

Command: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

_MAX_REDIRECTIONS = 8
"""More in a row mean that the nodes disagree, which passes: the call is repeated after a pause."""

_NODE_FAILURES = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ClusterDownError,
    OSError,
)

_KEYLESS = frozenset(
    {
        "CONFIG GET",
        "CONFIG SET",
        "DBSIZE",
        "FLUSHALL",
        "INFO",
        "PING",
        "SCRIPT FLUSH",
        "SCRIPT LOAD",
    }
    | {"TIME", "WAIT"}
)


class ClusterClient(AsyncCoreCommands):
    """Has the commands of ``redis.asyncio.Redis``, and its pipelines."""

    _event_dispatcher: Any = None  # the commands' base class declares one; nothing of ours uses it

    def __init__(self, seeds: Sequence[Host], make_client: Callable[[Host], Any]) -> None:
        """``make_client`` gives a client for one node, which repeats nothing by itself."""
        self._map = SlotMap(seeds, make_client)

    async def node_of(self, key: str) -> Any:
        """The client of the node that serves ``key`` now."""
        return self._map.client(await self._map.owner(key_slot(key.encode())))

    async def primaries(self) -> list[Any]:
        """Clients of all nodes that serve slots."""
        return [self._map.client(host) for host in await self._map.owners()]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command, where it belongs."""
        if _is_keyless(args):
            nodes = await self.primaries()
            answers = await asyncio.gather(
                *(node.execute_command(*args, **options) for node in nodes),
                return_exceptions=True,
            )
            return _definite(answers)[0]
        return await self._follow(_slot_of(args), (args, options))

    def pipeline(self, transaction: bool = True) -> "ClusterPipeline":
        """Commands that travel together. With ``transaction`` they must be of one slot."""
        return ClusterPipeline(self, transaction)

    async def run_batch(
        self, slot: int, commands: Sequence[Command], *, is_transaction: bool
    ) -> list[Any]:
        """Answers and errors of commands of one slot, in order, sent together."""
        for _ in range(_MAX_REDIRECTIONS):
            host = await self._map.owner(slot)
            pipeline = self._map.client(host).pipeline(transaction=is_transaction)
            for args, options in commands:
                pipeline.execute_command(*args, **options)
            try:
                answers = await pipeline.execute(raise_on_error=False)
            except redis.exceptions.AskError as error:  # of a transaction, which did nothing
                if not self._is_moved(error, host):
                    raise redis.exceptions.TryAgainError("the slot is on the move") from error
                continue
            except _NODE_FAILURES:
                self._map.doubt()
                raise
            # Redirected ones did nothing there; they follow one by one, in their order.
            return [
                await self._answer_or_error(slot, command)
                if isinstance(answer, (redis.exceptions.AskError, redis.exceptions.TryAgainError))
                else answer
                for command, answer in zip(commands, answers, strict=True)
            ]
        raise redis.exceptions.TryAgainError("too many redirections")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._map.aclose()

    async def _answer_or_error(self, slot: int, command: Command) -> Any:
        try:
            return await self._follow(slot, command)
        except redis.exceptions.ResponseError as error:
            return error

    async def _follow(self, slot: int, command: Command) -> Any:
        asking: Host | None = None
        for _ in range(_MAX_REDIRECTIONS):
            host = asking or await self._map.owner(slot)
            try:
                return await _send(self._map.client(host), command, is_asking=asking is not None)
            except redis.exceptions.AskError as error:
                asking = None if self._is_moved(error, host) else _target(error, host)
            except _NODE_FAILURES:
                self._map.doubt()
                raise
        raise redis.exceptions.TryAgainError("too many redirections")

    def _is_moved(self, error: redis.exceptions.AskError, host: Host) -> bool:
        """Whether the slot has a new owner for good, which is noted; an ASK is for one command."""
        if not isinstance(error, redis.exceptions.MovedError):
            return False
        self._map.move(error.slot_id, _target(error, host))
        return True


class ClusterPipeline(AsyncCoreCommands):
    """Collects commands; ``execute`` sends those of each slot together."""

    _event_dispatcher: Any = None

    def __init__(self, cluster: ClusterClient, is_transaction: bool) -> None:
        """``is_transaction``: all or none, and all of one slot."""
        self._cluster = cluster
        self._is_transaction = is_transaction
        self._commands: list[Command] = []

    def execute_command(self, *args: Any, **options: Any) -> "ClusterPipeline":
        """Queue a command."""
        self._commands.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers in the commands' order; the first error is raised, or all stand among the answers."""
        commands, self._commands = self._commands, []
        by_slot: dict[int, list[int]] = {}
        for index, (args, _) in enumerate(commands):
            by_slot.setdefault(_slot_of(args), []).append(index)
        assert not self._is_transaction or len(by_slot) <= 1, "a transaction has one slot"
        batches = await asyncio.gather(
            *(
                self._cluster.run_batch(
                    slot, [commands[i] for i in indices], is_transaction=self._is_transaction
                )
                for slot, indices in by_slot.items()
            ),
            return_exceptions=True,  # none is left running when another fails
        )
        answers: list[Any] = [None] * len(commands)
        for indices, batch in zip(by_slot.values(), _definite(batches), strict=True):
            for index, answer in zip(indices, batch, strict=True):
                answers[index] = answer
        return _definite(answers) if raise_on_error else answers


def _definite(answers: Sequence[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return list(answers)


async def _send(node: Any, command: Command, *, is_asking: bool) -> Any:
    args, options = command
    if not is_asking:
        return await node.execute_command(*args, **options)
    pipeline = node.pipeline(
        transaction=False
    )  # ASKING holds for the next command on its connection
    pipeline.execute_command("ASKING")
    pipeline.execute_command(*args, **options)
    answers = await pipeline.execute(raise_on_error=False)
    return _definite(answers)[1]


def _target(error: redis.exceptions.AskError, asked: Host) -> Host:
    """Where a redirection points; without a name, to another port of the node that was asked."""
    return error.host or asked[0], error.port


def _is_keyless(args: Sequence[Any]) -> bool:
    return str(args[0]).upper() in _KEYLESS


def _slot_of(args: Sequence[Any]) -> int:
    """The slot of a command's first key; all its keys are of one slot (``common.keys``)."""
    match str(args[0]).upper():
        case "EVALSHA" | "EVAL":
            key = args[3]
        case "XREAD" | "XREADGROUP":
            key = args[args.index(b"STREAMS") + 1]
        case _:
            key = args[1]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
