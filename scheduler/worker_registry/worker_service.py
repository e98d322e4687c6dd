"""``WorkerService.Connect``: greets a worker, finds the partition it serves, and carries what both sides say.

    Hello ──▶ check ──▶ card, if unknown ──▶ door of a partition led here ──▶ Welcome
                                         └─▶ led elsewhere, or nowhere yet ──▶ Redirect

The loop that reads a worker posts what it hears and awaits nothing but the next message.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc.aio

from common.domain import MODEL_NAME, Partition
from common.errors import Unavailable
from common.logs import get_log
from common.streams import cards, leases
from common.streams.node import Node
from common.wire import orders
from common.wire import session as wire
from common.wire.records import UndecodableError
from common.wire.session import CardChunk, Hello, Said
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.internal.v1.worker_service_pb2_grpc import WorkerServiceServicer
from scheduler.worker_registry.card_intake import CardRefused, ensure_card
from scheduler.worker_registry.doors import Door, Doors
from scheduler.worker_registry.events import SessionEnded, SessionOpened, SessionSaid
from scheduler.worker_registry.session import WorkerSession

HELLO_TIMEOUT_S = 10.0
# A first leader of a new model stands within milliseconds; whoever waits longer is better off asking again.
DOOR_TIMEOUT_S = 2.0
LOOK_INTERVAL_S = 0.25
REDIS_TIMEOUT_S = 5.0
# Life signs that may be missing before a worker counts as gone; the half one is for a busy network.
MISSED_HEARTBEATS = 3.5

Context = grpc.aio.ServicerContext[pb.ConnectRequest, pb.ConnectResponse]
_log = get_log(__name__)


class Refused(Exception):
    """The session cannot stand; the worker is told why."""


class WorkerService(WorkerServiceServicer):
    """The servicer; workers dial it."""

    def __init__(
        self,
        node: Node,
        doors: Doors,
        announce: Callable[[str], None],
        *,
        scheduler_id: str,
        heartbeat_ms: int,
    ) -> None:
        """``announce`` is told of each model that a worker serves."""
        self._node = node
        self._doors = doors
        self._announce = announce
        self._scheduler_id = scheduler_id
        self._heartbeat_ms = heartbeat_ms

    async def Connect(  # type: ignore[override]  # written by context.write, which the stubs do not know
        self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Context
    ) -> None:
        """One session, from Hello to its end."""
        messages = aiter(request_iterator)
        try:
            hello = await self._greet(messages)
            await ensure_card(
                self._node,
                hello,
                lambda: context.write(orders.card_request(0)),
                lambda: _next_chunk(messages),
            )
            door = await self._find_door(hello)
            if isinstance(door, str):
                await context.write(orders.redirect(door))
                return
            session = WorkerSession(hello, context.peer())
            _refuse_a_taken_id(session, door.holder(hello.worker_id))
            await self._converse(session, door, messages, context)
        except (Refused, CardRefused, UndecodableError) as error:
            _log.warning("worker refused", error=str(error), peer=context.peer())
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the greeting took too long")

    async def _greet(self, messages: AsyncIterator[pb.ConnectRequest]) -> Hello:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            hello = wire.said_from_pb(await anext(messages))
        if not isinstance(hello, Hello):
            raise Refused("the first message is no Hello")
        if hello.protocol != wire.PROTOCOL:
            raise Refused(f"protocol {hello.protocol} is not spoken here, {wire.PROTOCOL} is")
        if not MODEL_NAME.fullmatch(hello.model):
            raise Refused("the model has no proper name")
        if not (hello.worker_id and hello.incarnation and hello.fingerprint):
            raise Refused("worker id, incarnation and fingerprint must be given")
        if not (hello.max_seqs and hello.block_size and hello.kv_blocks):
            raise Refused("the worker has no room for any sequence")
        return hello

    async def _find_door(self, hello: Hello) -> Door | str:
        """The door of a partition led here, or the address of somebody else's."""
        door = self._doors.door_for(hello)
        if door is not None:
            return door
        self._announce(hello.model)
        for _ in range(round(DOOR_TIMEOUT_S / LOOK_INTERVAL_S)):
            address = await self._leader_elsewhere(hello.model)
            if address is not None:
                return address
            door = await self._doors.wait_for(hello, LOOK_INTERVAL_S)
            if door is not None:
                return door
        return ""

    async def _leader_elsewhere(self, model: str) -> str | None:
        for index in range(
            await cards.partition_count(self._node, model, bound_s=REDIS_TIMEOUT_S)
        ):
            leader = await leases.read_leader(
                self._node, Partition(model, index), bound_s=REDIS_TIMEOUT_S
            )
            if leader is not None and leader.scheduler_id != self._scheduler_id:
                return leader.address
        return None

    async def _converse(
        self,
        session: WorkerSession,
        door: Door,
        messages: AsyncIterator[pb.ConnectRequest],
        context: Context,
    ) -> None:
        session.send(orders.welcome(self._scheduler_id, door.partition.index, self._heartbeat_ms))
        door.post(SessionOpened(session))
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(session, door, messages))
                async for message in session.outgoing():
                    await context.write(message)
                listening.cancel()
        finally:
            session.close()
            door.post(SessionEnded(session))

    async def _listen(
        self, session: WorkerSession, door: Door, messages: AsyncIterator[pb.ConnectRequest]
    ) -> None:
        """Post what the worker says, until it ends or is silent for too long."""
        loop = asyncio.get_running_loop()
        silence_s = self._heartbeat_ms / 1000 * MISSED_HEARTBEATS
        try:
            async with asyncio.timeout(silence_s) as silence:
                async for message in messages:
                    silence.reschedule(loop.time() + silence_s)
                    said = wire.said_from_pb(message)
                    if not isinstance(said, Hello | CardChunk | None):
                        door.post(SessionSaid(session, said))
        except TimeoutError:
            _log.warning("worker silent", worker_id=session.worker_id, seconds=silence_s)
        except UndecodableError as error:
            _log.error("worker breaks the protocol", worker_id=session.worker_id, error=str(error))
        session.close()


def _refuse_a_taken_id(session: WorkerSession, holder: WorkerSession | None) -> None:
    """Two workers under one id would throw each other out for ever: the one that is here stays.

    A worker that was restarted may find its former self still here when their machine went down with it; the silence
    of that one ends soon, and workers dial until they get in.
    """
    if holder is None or holder.is_closed or holder.incarnation == session.incarnation:
        return
    raise Refused(
        f"worker id {session.worker_id} is taken by the worker at {holder.peer}; the one at {session.peer} "
        "needs a --worker-id of its own"
    )


async def _next_chunk(messages: AsyncIterator[pb.ConnectRequest]) -> CardChunk:
    said: Said | None = None
    while not isinstance(said, CardChunk):
        said = wire.said_from_pb(await anext(messages))
    return said
