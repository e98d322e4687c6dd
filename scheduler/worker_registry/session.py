"""One worker's session as the loop sees it: who it is, and a way to tell it things that never waits."""

import asyncio
from collections.abc import AsyncIterator

from common.wire import orders
from common.wire.session import Hello
from headrace.internal.v1 import worker_service_pb2 as pb


class WorkerSession:
    """Messages to a worker, in order. ``close`` is the last; what is sent after it is dropped."""

    def __init__(self, hello: Hello, peer: str) -> None:
        """Nothing said yet. ``peer`` is where the worker dials from."""
        self.hello = hello
        self.peer = peer
        self._outbox: asyncio.Queue[pb.ConnectResponse | None] = asyncio.Queue()
        self._is_closed = False
        self.was_sent_away = False

    @property
    def worker_id(self) -> str:
        """The worker's stable id."""
        return self.hello.worker_id

    @property
    def incarnation(self) -> str:
        """Tells a restart from a reconnect."""
        return self.hello.incarnation

    @property
    def is_closed(self) -> bool:
        """Whether this side has ended the session."""
        return self._is_closed

    def send(self, message: pb.ConnectResponse) -> None:
        """Tell the worker something."""
        if not self._is_closed:
            self._outbox.put_nowait(message)

    def close(self, redirect: str | None = None) -> None:
        """End the session; ``redirect`` says where to go next ('' for anywhere)."""
        if self._is_closed:
            return
        if redirect is not None:
            self.was_sent_away = True
            self._outbox.put_nowait(orders.redirect(redirect))
        self._is_closed = True
        self._outbox.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[pb.ConnectResponse]:
        """What is to be sent, until the session is closed."""
        while (message := await self._outbox.get()) is not None:
            yield message
