"""A connection whose commands follow one another without waiting for answers: for what is on the way of every request.

The client library opens it (TLS, login, database) and knows what an error answer means. What else it does around a
command takes twice as long as Redis and the network together, and a first token waits for five commands.

    run ──▶ written at once ──▶ Redis answers in order ──▶ data_received ──▶ whoever has waited longest
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
import redis.exceptions
from redis.asyncio.connection import DefaultParser

Command = tuple[Any, ...]
Answers = list[Any]
RedisClient = Any  # as in ``connections``


@dataclass(slots=True, eq=False)
class _Waiting:
    """Commands that were written together."""

    num_commands: int
    due_s: float
    answered: asyncio.Future[Answers]
    answers: Answers = field(default_factory=list)


class DirectLine(asyncio.Protocol):
    """One connection to one node. What is broken off stays so: whoever goes on opens another."""

    def __init__(self, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        """Takes over a connection on which nothing is under way. An answer may take ``timeout_s``."""
        self._writer = writer  # which would close the transport if nobody held it
        self._transport = writer.transport
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=redis.exceptions.InvalidResponse, replyError=DefaultParser.parse_error
        )
        self._waiting: deque[_Waiting] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._transport.set_protocol(self)

    @classmethod
    async def open(cls, client: RedisClient, timeout_s: float) -> "DirectLine":
        """A line to the node of ``client``, which is not one of a cluster.

        Raises:
            redis.exceptions.RedisError, OSError, TimeoutError: there is none at the moment.
        """
        pool = client.connection_pool
        # Of no pool, and with the older protocol: its answers have one form only.
        connection = pool.connection_class(**{**pool.connection_kwargs, "protocol": 2})
        await connection.connect()
        # The library gives no other way to what it has opened; from here on it takes it for closed.
        writer = connection._writer
        connection._reader = connection._writer = None
        return cls(writer, timeout_s)

    @property
    def is_open(self) -> bool:
        """Whether commands may be written."""
        return self._failure is None

    def run(self, commands: Sequence[Command]) -> asyncio.Future[Answers]:
        """Write these; their answers in order, among which errors are values.

        Nothing bounds what is written while Redis does not read, but the time until the line is given up for it.
        """
        if self._failure is not None:
            raise self._failure
        due_s = self._loop.time() + self._timeout_s
        waiting = _Waiting(len(commands), due_s, self._loop.create_future())
        self._waiting.append(waiting)
        if self._watch is None:
            self._watch = self._loop.call_at(due_s, self._look)
        self._transport.write(b"".join([hiredis.pack_command(command) for command in commands]))
        return waiting.answered

    def close(self) -> None:
        """Break it off; whoever waits is told."""
        self._fail(redis.exceptions.ConnectionError("the line was closed"))

    # What the event loop calls.

    def data_received(self, data: bytes) -> None:
        """More of the answers."""
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                if not waiting:
                    raise redis.exceptions.InvalidResponse("an answer to nothing")
                oldest = waiting[0]
                oldest.answers.append(answer)
                if len(oldest.answers) == oldest.num_commands:
                    waiting.popleft()
                    if not oldest.answered.done():  # whoever asked may have left
                        oldest.answered.set_result(oldest.answers)
        except redis.exceptions.InvalidResponse as error:
            self._fail(redis.exceptions.ConnectionError(f"what came is no answer: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """The other side is gone."""
        self._fail(redis.exceptions.ConnectionError(f"connection lost: {error or 'closed'}"))

    def _look(self) -> None:
        """One clock for all that wait: the first to be late breaks the line, since answers come in order."""
        self._watch = None
        if not self._waiting:
            return
        due_s = self._waiting[0].due_s
        if due_s <= self._loop.time():
            self._fail(redis.exceptions.TimeoutError(f"no answer for {self._timeout_s:g} s"))
        else:
            self._watch = self._loop.call_at(due_s, self._look)

    def _fail(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._transport.abort()
        if self._watch is not None:
            self._watch.cancel()
        for waiting in self._waiting:
            if not waiting.answered.done():
                waiting.answered.set_exception(failure)
        self._waiting.clear()
