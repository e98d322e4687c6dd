"""The readers of one gateway: one of its own log, and one of each foreign log that somebody follows."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from common.logs import Log
from common.streams import reply_log
from common.streams.node import Node
from common.streams.reply_log import id_ms
from gateway.background import Background
from gateway.relay.log_reader import LogReader

_MARK_BOUND_S = 1.0


@dataclass(slots=True)
class _Shared:
    """A foreign log's reader, its task, and how many followers need it."""

    reader: LogReader
    task: asyncio.Task[None]
    num_users: int = 0


class Readers:
    """Finds or makes the reader of a log."""

    def __init__(self, node: Node, gateway_id: str, background: Background, log: Log) -> None:
        """The own log is new, as the gateway's id is."""
        self._node = node
        self._background = background
        self._log = log
        self.own = LogReader(node, gateway_id, "0-0", log)
        self._foreign: dict[str, _Shared] = {}

    @contextmanager
    def reading(self, log_name: str, after: str) -> Iterator[LogReader]:
        """The reader of a log; a foreign one that nobody reads yet begins behind ``after``."""
        if log_name == self.own.log_name:
            yield self.own
            return
        shared = self._foreign.get(log_name)
        if shared is None:
            reader = LogReader(self._node, log_name, after, self._log)
            task = self._background.start(reader.run(), f"read {log_name}", within_s=None)
            shared = self._foreign[log_name] = _Shared(reader, task)
        shared.num_users += 1
        try:
            yield shared.reader
        finally:
            shared.num_users -= 1
            if shared.num_users == 0:
                del self._foreign[log_name]
                shared.task.cancel()

    async def move_mark(self) -> None:
        """Let the own log be trimmed behind what was read.

        Raises:
            Unavailable: not now; the next try moves it further.
        """
        mark = {f"reader:{self.own.log_name}": id_ms(self.own.position)}
        await reply_log.append(self._node, self.own.log_name, b"", mark, bound_s=_MARK_BOUND_S)
