"""A worker without a model: a real session over real gRPC, tokens that follow from the prompt and the position."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc.aio

from common.domain import FinishReason
from common.model_card import ModelCard
from common.wire import vocabulary
from common.wire.card import encode_card
from headrace.internal.v1 import records_pb2
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.internal.v1.worker_service_pb2_grpc import WorkerServiceStub
from tests.support.time_scale import scaled

MODEL = "sim"
CHUNK = 700


def token_at(prompt: tuple[int, ...], position: int) -> int:
    """The token that the fake model generates at a position."""
    return (sum(prompt) * 31 + position * 7) % 1000


def text_of(token: int) -> str:
    """The token's text."""
    return f"{token} "


def expected(prompt: tuple[int, ...], count: int) -> list[int]:
    """What an undisturbed run generates."""
    return [token_at(prompt, position) for position in range(count)]


def make_card(revision: str = "r1") -> ModelCard:
    """A card of a few chunks."""
    return ModelCard(
        model=MODEL,
        revision=revision,
        architecture="fake",
        quantization="none",
        context_tokens=4096,
        vocab_size=1000,
        tokenizer_json=b"x" * 2000,
        chat_template="",
        special_tokens={},
        eos_token_ids=(0,),
        default_max_tokens=16,
        kv_capacity_tokens=4096,
        fingerprint="fp1",
    )


@dataclass
class Sequence:
    """A request that the fake worker runs."""

    assignment: pb.Assignment
    num_generated: int
    sent_prompt: bool = False

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple(self.assignment.body.prompt_token_ids)


@dataclass
class FakeWorker:
    """One session. ``may_step`` lets it generate; ``num_steps`` left limits how far (None: no limit)."""

    worker_id: str = "w1"
    incarnation: str = "i1"
    fingerprint: str = "fp1"
    max_seqs: int = 8
    answers_cancel: bool = True
    beats: bool = True
    steps_left: int | None = None
    step_s: float = 0.002
    bad_card: bool = False
    accent: int = 0
    """What it adds to each token: one with another accent disagrees about every token."""
    fails: Callable[[Sequence], bool] = lambda _: False
    """Whether a sequence fails at the token that it has just generated."""
    revision: str = "r1"
    received: list[pb.ConnectResponse] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    running: dict[str, Sequence] = field(default_factory=dict)
    crowds: list[frozenset[str]] = field(default_factory=list)
    """What ran together behind each assignment."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    outbox: asyncio.Queue[pb.ConnectRequest | None] = field(default_factory=asyncio.Queue)
    num_kv_blocks: int = 256
    step_age_ms: int = 0
    num_beats: int = 0

    async def run(self, address: str) -> str:
        """Hold one session; answers a redirect's address, or '' when it ends otherwise."""
        self.outbox = asyncio.Queue()
        async with grpc.aio.insecure_channel(address) as channel:
            call = WorkerServiceStub(channel).Connect()
            self._hello()
            try:
                async with asyncio.TaskGroup() as tasks:
                    helpers = [
                        tasks.create_task(self._write(call)),
                        tasks.create_task(self._steps()),
                        tasks.create_task(self._beat()),
                    ]
                    redirect = await self._read(call)
                    for helper in helpers:
                        helper.cancel()
                return redirect
            finally:
                call.cancel()

    async def until(self, what, within_s: float = 60.0) -> None:
        """Wait until ``what(self)`` holds."""
        async with asyncio.timeout(scaled(within_s)), self.changed:
            await self.changed.wait_for(lambda: what(self))

    async def refused(self, errors: list[str]) -> None:
        """A session did not come about, or broke."""
        async with self.changed:
            self.refusals += errors
            self.changed.notify_all()

    def say(self, message: pb.ConnectRequest) -> None:
        self.outbox.put_nowait(message)

    @property
    def is_welcome(self) -> bool:
        return any(message.HasField("welcome") for message in self.received)

    @property
    def credit(self) -> pb.Credit:
        free = self.max_seqs - len(self.running)
        return pb.Credit(free_seqs=free, free_blocks=self.num_kv_blocks - 8 * len(self.running))

    @property
    def assigns(self) -> list[pb.Assignment]:
        return [one for m in self.received for one in m.assign.assignments]

    def _hello(self) -> None:
        card = encode_card(make_card(self.revision))
        hello = pb.Hello(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            protocol=1,
            model=MODEL,
            model_revision=self.revision,
            card_hash=b"?" if self.bad_card else hashlib.sha256(card).digest(),
            fingerprint=self.fingerprint,
            kv_blocks=self.num_kv_blocks,
            block_size=16,
            max_seqs=self.max_seqs,
            max_batch_tokens=512,
        )
        self.say(pb.ConnectRequest(hello=hello))

    async def _read(self, call) -> str:
        while (message := await call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("event")
            if kind == "redirect":
                return message.redirect.address
            async with self.changed:
                self.received.append(message)
                getattr(self, f"_on_{kind}")(message)
                self.changed.notify_all()
        return ""

    def _on_welcome(self, message: pb.ConnectResponse) -> None:
        self.say(pb.ConnectRequest(credit=self.credit))

    def _on_card_request(self, message: pb.ConnectResponse) -> None:
        card = encode_card(make_card(self.revision))
        for offset in range(message.card_request.offset, len(card), CHUNK):
            chunk = pb.CardChunk(
                offset=offset, data=card[offset : offset + CHUNK], last=offset + CHUNK >= len(card)
            )
            self.say(pb.ConnectRequest(card_chunk=chunk))

    def _on_assign(self, message: pb.ConnectResponse) -> None:
        for assignment in message.assign.assignments:
            done = sum(len(choice.token_ids) for choice in assignment.resume.choices)
            self.running[assignment.body.request_id] = Sequence(assignment, done)
        self.crowds.append(frozenset(self.running))

    def _on_cancel(self, message: pb.ConnectResponse) -> None:
        if not self.answers_cancel:
            return
        step = pb.StepOutput()
        for sequence in message.cancel.sequences:
            running = self.running.pop(sequence.request_id, None)
            if running is not None:
                output = self._output(running)
                output.finish.reason = message.cancel.reason
                step.sequences.append(output)
        step.credit.CopyFrom(self.credit)
        self.say(pb.ConnectRequest(output=step))

    def _on_drain(self, message: pb.ConnectResponse) -> None:
        self.say(pb.ConnectRequest(draining=pb.Draining(reason="told to")))

    def _on_preempt(self, message: pb.ConnectResponse) -> None:
        asked = {(one.request_id, one.attempt) for one in message.preempt.sequences}
        going = [
            one
            for one in self.running.values()
            if (one.assignment.body.request_id, one.assignment.attempt) in asked
        ]
        self._give_back(going, "preempted")

    def _on_ping(self, message: pb.ConnectResponse) -> None:
        """Heartbeats come anyway."""

    async def _write(self, call) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while (message := await self.outbox.get()) is not None:
                await call.write(message)
            await call.done_writing()

    async def _beat(self) -> None:
        while self.beats:
            await asyncio.sleep(0.05)
            beat = pb.Heartbeat(credit=self.credit, last_step_age_ms=self.step_age_ms)
            self.say(pb.ConnectRequest(heartbeat=beat))
            async with self.changed:
                self.num_beats += 1
                self.changed.notify_all()

    async def _steps(self) -> None:
        while True:
            await asyncio.sleep(self.step_s)
            if self.running and self.steps_left != 0:
                if self.steps_left is not None:
                    self.steps_left -= 1
                await self.step()

    async def step(self) -> None:
        """One token for everything that runs."""
        step = pb.StepOutput()
        for request_id, sequence in list(self.running.items()):
            output = self._output(sequence)
            token = token_at(sequence.prompt, sequence.num_generated) + self.accent
            text = text_of(token)
            output.token_ids.append(token)
            output.text = text
            output.text_chars.append(len(text))
            sequence.num_generated += 1
            if sequence.num_generated >= sequence.assignment.body.stop.max_tokens:
                output.finish.reason = vocabulary.finish_reason_to_pb(FinishReason.LENGTH)
                del self.running[request_id]
            elif self.fails(sequence):
                output.finish.reason = vocabulary.finish_reason_to_pb(FinishReason.ERROR)
                del self.running[request_id]
            step.sequences.append(output)
        step.credit.CopyFrom(self.credit)
        self.say(pb.ConnectRequest(output=step))
        async with self.changed:
            self.changed.notify_all()

    def give_back_all(self, reason: str) -> None:
        """Return everything that runs."""
        self._give_back(list(self.running.values()), reason)

    def _give_back(self, sequences: list[Sequence], reason: str) -> None:
        step = pb.StepOutput()
        for sequence in sequences:
            del self.running[sequence.assignment.body.request_id]
            step.returned.add(
                request_id=sequence.assignment.body.request_id,
                epoch=sequence.assignment.epoch,
                attempt=sequence.assignment.attempt,
                reason=reason,
            )
        step.credit.CopyFrom(self.credit)
        self.say(pb.ConnectRequest(output=step))

    def _output(self, sequence: Sequence) -> pb.SequenceOutput:
        output = pb.SequenceOutput(
            request_id=sequence.assignment.body.request_id,
            epoch=sequence.assignment.epoch,
            attempt=sequence.assignment.attempt,
        )
        if not sequence.sent_prompt:
            sequence.sent_prompt = True
            output.prompt.CopyFrom(records_pb2.PromptRecord(worker_id=self.worker_id))
        return output


@contextlib.asynccontextmanager
async def working(worker: FakeWorker, address: str) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that dials again and again, like a real one; cancelling the task is its death."""

    is_over = False

    async def dial() -> None:
        target = address
        while not is_over:  # a task group whose task fails drops a cancellation that comes then
            try:
                target = await worker.run(target) or address
            except* grpc.aio.AioRpcError as group:
                target = address
                await worker.refused([str(error) for error in group.exceptions])
            worker.running.clear()
            await asyncio.sleep(0.05)

    task = asyncio.create_task(dial())
    try:
        yield task
    finally:
        is_over = True
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()
