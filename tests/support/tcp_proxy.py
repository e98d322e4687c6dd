"""A TCP proxy on loopback that a test puts between two processes, to cut, stall or garble what lies between.

It runs in a thread of its own, so it serves tests with and without an event loop, and other processes.

    with running_proxy(redis_server.port) as proxy:
        node = Node(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.drop_replies(b"XADD", count=1)   # applied, but the answer is lost
        proxy.blackhole()                      # accepts everything and answers nothing
        proxy.delay(0.05)                      # each way
        proxy.pass_through()                   # as at the start
        proxy.cut()                            # every connection of this moment is reset
    proxy.lead_to(replica.port)            # and new ones lead elsewhere
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from tests.support.time_scale import scaled

T = TypeVar("T")
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close means RST, as after a cut


class _Mode(Enum):
    PASS = auto()
    BLACKHOLE = auto()


@dataclass(slots=True, eq=False)
class _Link:
    """One connection through the proxy; each side may be missing while it is being made or ended."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    tail: bytes = b""
    is_reply_dropped: bool = False
    has_swallowed: bool = False

    def close(self, *, hard: bool = True) -> None:
        for writer in (self.client, self.server):
            if writer is None:
                continue
            if not hard:
                writer.close()
                continue
            # Also one that is closing: it would wait for ever for a peer that does not read.
            raw = writer.transport.get_extra_info("socket")
            if raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class TcpProxy:
    """Forwards connections to one port, in the mode of the moment. Everything it holds belongs to its thread."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._mode = _Mode.PASS
        self._swallows_ends = False
        self._delay_s = 0.0
        self._pattern = b""
        self._num_to_drop = 0
        self._num_dropped = 0
        self._reply_bytes = 0
        self._links: dict[_Link, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def num_dropped(self) -> int:
        """Replies that were swallowed since the start."""
        return self._do(lambda: self._num_dropped)

    @property
    def reply_bytes(self) -> int:
        """Bytes that came back since the start."""
        return self._do(lambda: self._reply_bytes)

    def start(self) -> None:
        """Listen on a free loopback port."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(scaled(60))

    def close(self) -> None:
        """Stop listening and end all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(scaled(60))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(scaled(60))
        self._loop.close()

    def pass_through(self) -> None:
        """Forward everything at once. Connections that lost bytes to a black hole are reset."""
        self._do(self._pass_through)

    def blackhole(self, *, swallows_ends: bool = False) -> None:
        """Accept and swallow: connections stay open and nothing comes back.

        ``swallows_ends``: nor is the target told that a client has closed, as where packets are lost.
        """

        def swallow() -> None:
            self._mode, self._swallows_ends = _Mode.BLACKHOLE, swallows_ends

        self._do(swallow)

    def delay(self, seconds: float) -> None:
        """Hold every chunk back by so much, each way."""
        self._do(lambda: setattr(self, "_delay_s", seconds))

    def cut(self) -> int:
        """Reset every connection of this moment; new ones are served. Answers how many there were."""
        return self._do(self._cut)

    def lead_to(self, target_port: int) -> None:
        """From now on connections lead to another port; those of this moment are reset."""
        self._do(lambda: setattr(self, "_target_port", target_port))
        self.cut()

    def drop_replies(self, pattern: bytes, count: int) -> None:
        """Of the next `count` commands that contain `pattern`: forward, await the reply, drop it and reset."""
        self._do(lambda: self._arm(pattern, count))

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(scaled(60))

    def _pass_through(self) -> None:
        self._mode, self._delay_s, self._num_to_drop = _Mode.PASS, 0.0, 0
        for link in [link for link in self._links if link.has_swallowed]:
            link.close()

    def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.close()
        return len(links)

    def _arm(self, pattern: bytes, count: int) -> None:
        assert pattern
        self._pattern, self._num_to_drop = pattern, count

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        me = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not me]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links[link] = None
        try:
            server_reader, link.server = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump_requests(link, reader))
                group.create_task(self._pump_replies(link, server_reader))
        except* OSError:
            pass  # either side is gone, or the target refuses: the other side is told by a reset
        finally:
            link.close()
            del self._links[link]

    async def _pump_requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        assert link.server is not None
        while chunk := await reader.read(_CHUNK):
            if not await self._may_pass(link):
                continue
            if self._num_to_drop and self._pattern in link.tail + chunk:
                self._num_to_drop -= 1
                link.is_reply_dropped = True
            link.tail = chunk[1 - len(self._pattern) :] if len(self._pattern) > 1 else b""
            link.server.write(chunk)
            await link.server.drain()
        if self._mode is _Mode.BLACKHOLE and self._swallows_ends:
            await asyncio.Event().wait()  # until the proxy ends
        link.server.close()

    async def _pump_replies(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(_CHUNK):
            if link.is_reply_dropped:
                self._num_dropped += 1
                break
            if await self._may_pass(link):
                self._reply_bytes += len(chunk)
                link.client.write(chunk)
                await link.client.drain()
        link.close(hard=link.is_reply_dropped)

    async def _may_pass(self, link: _Link) -> bool:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._mode is _Mode.BLACKHOLE:
            link.has_swallowed = True
            return False
        return True


@contextlib.contextmanager
def running_proxy(target_port: int) -> Iterator[TcpProxy]:
    """A started proxy to a loopback port."""
    proxy = TcpProxy(target_port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
