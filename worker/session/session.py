"""One session with one scheduler, from Hello to its end.

    _read    scheduler's messages ──▶ engine thread     never awaits anything but the next message
    _write   outbox ──▶ scheduler                       everything the worker says, in order
    _beat    life signs, as often as Welcome asks
    _leave   drain: finish within the grace, give back the rest, close

The tasks share one future: the first to know why the session is over says so, and the others are cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from common.domain import Clock, TraceContext
from common.grpc_options import Options, internal_channel_options
from common.logs import get_log
from common.tls import ClientTls
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.internal.v1.worker_service_pb2_grpc import WorkerServiceStub
from worker.engine.engine import PREEMPTED
from worker.engine.job import Ticket
from worker.engine.report import Credit, StepReport
from worker.session import messages
from worker.session.engine_thread import EngineThread
from worker.session.grammar_gate import Compiler, GrammarGate
from worker.session.identity import WorkerIdentity
from worker.session.live_requests import LiveRequests, Origin

# A scheduler answers Hello with what it knows; only a busy machine makes it slow.
HANDSHAKE_TIMEOUT_S = 10.0
# Keepalive notices a dead peer within 10 s, and a write waits for the peer's flow control at most as long.
WRITE_TIMEOUT_S = 15.0
# For the scheduler to take the last outputs and close its side.
CLOSE_TIMEOUT_S = 5.0
# Steps that a scheduler may lag behind, minutes of work: beyond it is not coming back to read them.
MAX_UNSENT = 10_000
DRAINED = "drained"
REFUSED = "refused"

Call = grpc.aio.StreamStreamCall[pb.ConnectRequest, pb.ConnectResponse]

_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a session is over. ``redirect`` is where to dial next; ``has_left`` says that nobody is to be dialled."""

    reason: str
    redirect: str = ""
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What the sessions of a worker share. ``on_step`` sees each report; ``on_welcome`` each session that stands."""

    identity: WorkerIdentity
    engine: EngineThread
    live: LiveRequests
    clock: Clock
    on_step: Callable[[StepReport], None]
    on_welcome: Callable[[str], None]
    grammars: Compiler | None = None
    tls: ClientTls | None = None


class Session:
    """Used once: ``run`` it."""

    def __init__(self, parts: SessionParts, address: str) -> None:
        """A session with the scheduler at ``address``, not begun."""
        self._parts = parts
        self._address = address
        self._outbox: asyncio.Queue[pb.ConnectRequest | None] = asyncio.Queue()
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._spawn: Callable[[Coroutine[Any, Any, None]], object] | None = None
        self._gate = GrammarGate(parts.engine, parts.grammars)
        self._is_leaving = False
        self.is_welcome = False

    async def run(self) -> Ended:
        """Hold the session until it is over; every sequence that was assigned in it ends with it."""
        loop = asyncio.get_running_loop()
        await self._parts.engine.begin_session(
            lambda report: loop.call_soon_threadsafe(self._observe, report)
        )
        options = internal_channel_options()
        try:
            try:
                opened = self._channel(options)
            except OSError as error:
                return Ended(f"TLS: {error}")
            async with opened as channel:
                call: Call = WorkerServiceStub(channel).Connect()
                return await self._converse(call)
        finally:
            self._parts.live.abandon("session over")

    def _channel(self, options: Options) -> grpc.aio.Channel:
        tls = self._parts.tls
        if tls is None:
            return grpc.aio.insecure_channel(self._address, options=options)
        return grpc.aio.secure_channel(self._address, tls.credentials(), options=options)

    def leave(self, grace_s: float, reason: str) -> None:
        """Take nothing more, finish within ``grace_s``, give back the rest, and end the session."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self._spawn is None or not self.is_welcome:
            self._end(Ended(reason, has_left=True))
            return
        _log.info("draining", reason=reason, grace_s=grace_s, requests=len(self._parts.live))
        self._send(pb.ConnectRequest(draining=pb.Draining(reason=reason)))
        self._spawn(self._leave(grace_s, reason))

    async def _converse(self, call: Call) -> Ended:
        tasks: list[asyncio.Task[None]] = []
        self._send(messages.hello_to_pb(self._parts.identity))
        try:
            async with asyncio.TaskGroup() as group:
                self._spawn = lambda work: tasks.append(group.create_task(work))
                self._spawn(self._read(call))
                self._spawn(self._write(call))
                ended = await self._ended
                for task in tasks:
                    task.cancel()
        finally:
            self._spawn = None
            call.cancel()
        return ended

    def _end(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def _send(self, message: pb.ConnectRequest) -> None:
        if self._outbox.qsize() >= MAX_UNSENT:
            self._end(Ended("the scheduler does not read"))
        self._outbox.put_nowait(message)

    def _observe(self, report: StepReport) -> None:
        """What the engine's thread has to tell, in the event loop."""
        if self._ended.done():
            return
        self._parts.live.observe(report)
        self._parts.on_step(report)
        for delta in messages.cache_deltas(report.cache):
            self._send(delta)
        self._send(messages.report_to_pb(report, self._parts.identity.worker_id))

    # The tasks.

    async def _read(self, call: Call) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S) as handshake:
                while (message := await call.read()) is not grpc.aio.EOF:
                    assert isinstance(message, pb.ConnectResponse)
                    self._handle(message)
                    if self.is_welcome:
                        handshake.reschedule(None)  # silence is the keepalive's business now
            ended = Ended("the scheduler closed the session", has_left=self._is_leaving)
        except TimeoutError:
            ended = Ended("no welcome in time")
        except grpc.aio.AioRpcError as error:
            ended = Ended(f"{error.code().name}: {error.details()}", has_left=self._is_leaving)
        self._end(ended)

    async def _write(self, call: Call) -> None:
        try:
            while (message := await self._outbox.get()) is not None:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await call.write(message)
            await call.done_writing()
        except TimeoutError:
            self._end(Ended("the scheduler does not read"))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call is over; ``_read`` learns why.
            _log.debug("write_after_end", address=self._address)

    async def _beat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            self._send_heartbeat()

    async def _leave(self, grace_s: float, reason: str) -> None:
        live = self._parts.live
        if not await live.wait_until_empty(grace_s):
            self._gate.give_back_all(DRAINED)
            # Bounded by the step under way; a hanging one is the watchdog's.
            await live.wait_until_empty(grace_s + CLOSE_TIMEOUT_S)
        self._outbox.put_nowait(None)
        await asyncio.wait(
            [self._ended], timeout=CLOSE_TIMEOUT_S
        )  # until the scheduler closes too
        self._end(Ended(reason, has_left=True))

    # The scheduler's messages.

    def _handle(self, message: pb.ConnectResponse) -> None:
        match message.WhichOneof("event"):
            case "assign":
                self._assign(message.assign)
            case "cancel" | "preempt":
                self._stop_some(message)
            case "ping":
                self._send_heartbeat()
            case "welcome":
                self._welcome(message.welcome)
            case "redirect":
                address = message.redirect.address
                self._end(Ended(f"redirected to {address or 'nobody'}", redirect=address))
            case "card_request":
                card = self._parts.identity.card_bytes
                for chunk in messages.card_chunks(card, message.card_request.offset):
                    self._send(chunk)
            case "drain":
                self.leave(message.drain.grace_ms / 1000, "drained by the scheduler")

    def _stop_some(self, message: pb.ConnectResponse) -> None:
        gate = self._gate
        if message.WhichOneof("event") == "cancel":
            reason = messages.cancel_reason_of(message.cancel)
            for sequence in filter(self._is_meant, message.cancel.sequences):
                gate.cancel(sequence.request_id, sequence.attempt, reason)
        for sequence in filter(self._is_meant, message.preempt.sequences):
            gate.give_back(sequence.request_id, sequence.attempt, PREEMPTED)

    def _is_meant(self, sequence: pb.CancelSequence) -> bool:
        """Whether it was assigned here in that epoch: an order of an earlier one must not stop what a later one assigned."""
        ticket = Ticket(sequence.request_id, sequence.epoch, sequence.attempt)
        return not sequence.epoch or ticket in self._parts.live

    def _welcome(self, welcome: pb.Welcome) -> None:
        if self.is_welcome:
            return
        self.is_welcome = True
        _log.info("welcome", scheduler=welcome.scheduler_id, partition=welcome.partition)
        self._send(pb.ConnectRequest(credit=messages.credit_to_pb(self._credit)))
        self._parts.engine.tell_cache()
        assert self._spawn is not None
        self._spawn(self._beat(max(0.05, welcome.heartbeat_ms / 1000)))
        self._parts.on_welcome(welcome.scheduler_id)

    def _assign(self, assign: pb.Assign) -> None:
        now_s = self._parts.clock()
        batch = TraceContext(assign.traceparent)
        for assignment in assign.assignments:
            ticket = messages.ticket_of(assignment)
            if self._is_leaving:
                self._parts.engine.refuse(ticket, DRAINED)
                continue
            try:
                job = messages.job_from_pb(assignment, now_s)
            except (KeyError, ValueError) as error:
                _log.error("bad_assignment", request_id=ticket.request_id, error=str(error))
                output = messages.refusal_of(ticket)
                self._send(messages.output_alone_to_pb(output, self._parts.identity.worker_id))
                continue
            if not job.choices:  # nothing is left to generate: the scheduler knows the end already
                self._parts.engine.refuse(ticket, REFUSED)
                continue
            origin = Origin(messages.span_parent_of(assignment), batch, assign.batch_id)
            self._parts.live.begin(job, origin)
            assert self._spawn is not None
            self._gate.submit(job, self._spawn)

    def _send_heartbeat(self) -> None:
        age_s = self._parts.engine.status.step_age_s(self._parts.clock())
        beat = pb.Heartbeat(
            last_step_age_ms=round(age_s * 1000), credit=messages.credit_to_pb(self._credit)
        )
        self._send(pb.ConnectRequest(heartbeat=beat))

    @property
    def _credit(self) -> Credit:
        return self._parts.engine.status.credit
