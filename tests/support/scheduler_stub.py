"""The scheduler's side of a worker session, played by a test over real gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from common.domain import SamplingParams, StopConditions
from common.grpc_options import internal_server_options
from common.wire import vocabulary
from headrace.internal.v1 import records_pb2
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.internal.v1.worker_service_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from tests.support.time_scale import scaled


class StubSession:
    """One session: what the worker said, and a way to answer."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[pb.ConnectRequest | None] = asyncio.Queue()
        self._outgoing: asyncio.Queue[pb.ConnectResponse | None] = asyncio.Queue()
        self.outputs: list[pb.StepOutput] = []

    def send(self, **event: Message) -> None:
        """Send one event, by its field's name."""
        self._outgoing.put_nowait(pb.ConnectResponse(**event))

    def close(self) -> None:
        """End the session from this side."""
        self._outgoing.put_nowait(None)

    async def receive(self, kind: str, within_s: float = 60) -> Any:
        """The next message of a kind; outputs passed on the way are kept in ``outputs``."""
        async with asyncio.timeout(scaled(within_s)):
            while (message := await self._incoming.get()) is not None:
                event = message.WhichOneof("event")
                assert event is not None
                if event == "output":
                    self.outputs.append(message.output)
                if event == kind:
                    return getattr(message, event)
        raise AssertionError(f"the session ended without {kind}")

    async def wait_closed(self, within_s: float = 60) -> None:
        """Until the worker has closed its side."""
        async with asyncio.timeout(scaled(within_s)):
            while (message := await self._incoming.get()) is not None:
                if message.HasField("output"):
                    self.outputs.append(message.output)

    async def until(self, holds: Callable[[], bool], within_s: float = 60) -> None:
        """Take outputs until something holds."""
        while not holds():
            await self.receive("output", within_s)

    async def welcome(self, heartbeat_ms: int = 60_000) -> pb.Credit:
        """Play the handshake without asking for the card."""
        await self.receive("hello")
        self.send(welcome=pb.Welcome(scheduler_id="stub", heartbeat_ms=heartbeat_ms))
        return await self.receive("credit")

    def tokens_of(self, request_id: str, index: int = 0) -> list[int]:
        """Tokens told so far of one choice."""
        return [t for s in self._sequences(request_id, index) for t in s.token_ids]

    def text_of(self, request_id: str, index: int = 0) -> str:
        """Text told so far of one choice, the finish's included."""
        return "".join(s.text + s.finish.text for s in self._sequences(request_id, index))

    def finish_of(self, request_id: str, index: int = 0) -> pb.SequenceFinish | None:
        """The choice's end, if it was told."""
        found = [s.finish for s in self._sequences(request_id, index) if s.HasField("finish")]
        return found[0] if found else None

    @property
    def returned(self) -> dict[str, str]:
        """Requests given back, with the reason."""
        return {r.request_id: r.reason for output in self.outputs for r in output.returned}

    def _sequences(self, request_id: str, index: int) -> list[pb.SequenceOutput]:
        return [
            sequence
            for output in self.outputs
            for sequence in output.sequences
            if (sequence.request_id, sequence.index) == (request_id, index)
        ]


class SchedulerStub(WorkerServiceServicer):
    """Accepts workers."""

    def __init__(self) -> None:
        self._sessions: asyncio.Queue[StubSession] = asyncio.Queue()
        self.address = ""

    async def session(self, within_s: float = 60) -> StubSession:
        """The next worker's session."""
        async with asyncio.timeout(scaled(within_s)):
            return await self._sessions.get()

    async def Connect(self, request_iterator, context) -> AsyncIterator[pb.ConnectResponse]:  # noqa: N802
        session = StubSession()
        self._sessions.put_nowait(session)
        reading = asyncio.ensure_future(self._read(session, request_iterator))
        try:
            while (message := await session._outgoing.get()) is not None:
                yield message
        finally:
            reading.cancel()

    async def _read(self, session: StubSession, messages) -> None:
        try:
            async for message in messages:
                session._incoming.put_nowait(message)
        finally:
            session._incoming.put_nowait(None)
            session.close()


@contextlib.asynccontextmanager
async def scheduler_stub(port: int = 0) -> AsyncIterator[SchedulerStub]:
    """A stub that listens on loopback."""
    stub = SchedulerStub()
    server = grpc.aio.server(options=internal_server_options())
    add_WorkerServiceServicer_to_server(stub, server)
    stub.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    try:
        yield stub
    finally:
        await server.stop(grace=None)


def assignment(
    request_id: str = "sim:0:r",
    prompt: str = "hello",
    *,
    max_tokens: int = 12,
    attempt: int = 1,
    remaining_ms: int = 0,
    traceparent: str = "",
    generated: list[int] | None = None,
    stop: StopConditions | None = None,
) -> pb.Assignment:
    """One request for the simulated model, whose tokens are bytes."""
    made = pb.Assignment(
        body=records_pb2.RequestBody(
            request_id=request_id,
            model="simulated",
            prompt_token_ids=prompt.encode(),
            sampling=vocabulary.sampling_to_pb(SamplingParams(seed=1, temperature=0.0)),
            stop=vocabulary.stop_to_pb(stop or StopConditions(max_tokens=max_tokens)),
        ),
        epoch=3,
        attempt=attempt,
        remaining_ms=remaining_ms,
        traceparent=traceparent,
    )
    if generated:
        made.resume.choices.add(index=0, token_ids=generated)
    return made
