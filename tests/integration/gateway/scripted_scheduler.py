"""Plays the scheduler through the same streams: each test says what happens to a request, record by record."""

import asyncio
import secrets
from dataclasses import dataclass, field

from common.domain import (
    FinishReason,
    GenerationRequest,
    Partition,
    RequestId,
    SamplingParams,
    StopConditions,
    Usage,
)
from common.logprobs import Logprobs, TokenLogprob
from common.records import (
    Fact,
    Failure,
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    Timings,
    TokensRecord,
)
from common.request_status import status_of_finish
from common.streams import inbox, ownership, reply_log, snapshots
from common.streams.inbox import InboxEntry
from common.streams.node import Node
from common.wire.records import (
    TerminalRecord,
    encode_log_batch,
    encode_progress,
    encode_terminal,
)
from common.wire.request import parse_body, request_from_body
from common.wire.snapshot import (
    ClassStatus,
    PartitionStatus,
    QueuePosition,
    WorkerStatus,
    encode_status,
)

# Stands for a request whose body nobody has read.
_UNKNOWN = GenerationRequest("", "", "", (), SamplingParams(0), StopConditions(1))


def words(first: int, count: int) -> list[str]:
    """Text of made-up tokens: each is recognizable by its seq."""
    return [f"w{seq} " for seq in range(first, first + count)]


def logprobs_of(token_id: int) -> Logprobs:
    """Made-up numbers: each is recognizable by its token."""
    top = TokenLogprob(token_id + 1, -token_id / 8, b"\xff")
    return Logprobs(TokenLogprob(token_id, -token_id / 4, b"t"), (top,))


@dataclass
class Led:
    """A request that the test leads."""

    node: Node
    id: RequestId
    request: GenerationRequest
    entry: InboxEntry
    log: str
    epoch: int
    progress: Progress = field(default_factory=Progress)

    async def append(self, *facts: Fact, epoch: int | None = None) -> str:
        """One append to the log, counted in `progress`."""
        records = [LogRecord(str(self.id), epoch or self.epoch, fact) for fact in facts]
        for fact in facts:
            self.progress.add(fact)
        self.progress.log_id = await reply_log.append(
            self.node, self.log, encode_log_batch(records), {}
        )
        return self.progress.log_id

    async def prompt(self) -> None:
        """A worker takes up the prompt."""
        logprobs: tuple[Logprobs, ...] = ()
        if self.request.output.prompt_logprobs:
            first, *others = self.request.prompt_token_ids
            assert first
            logprobs = (Logprobs(), *map(logprobs_of, others))
        await self.append(PromptRecord(cached_tokens=0, worker_id="w1", logprobs=logprobs))

    def next_tokens(self, count: int) -> TokensRecord:
        """The next made-up tokens."""
        first = self.progress.next_seq
        texts = words(first, count)
        token_ids = tuple(100 + seq for seq in range(first, first + count))
        wanted = self.request.output.logprobs
        return TokensRecord(
            first,
            0,
            token_ids,
            "".join(texts),
            tuple(map(len, texts)),
            tuple(map(logprobs_of, token_ids)) if wanted else (),
        )

    async def tokens(self, count: int = 1) -> None:
        """More tokens, in one record."""
        await self.append(self.next_tokens(count))

    async def fence(self) -> None:
        """Another scheduler takes over."""
        self.epoch += 1
        await self.append(FenceRecord())

    async def checkpoint(self) -> None:
        """Store what is logged."""
        self.progress.epoch = self.epoch
        await ownership.store_checkpoint(
            self.node, self.id, self.epoch, encode_progress(self.progress)
        )

    async def finish(
        self,
        reason: FinishReason = FinishReason.STOP,
        *,
        failure: Failure | None = None,
        text: str = "",
        logged: bool = True,
    ) -> None:
        """The finish in the log, then the terminal record, then the ack."""
        timings = Timings(queue_s=0.001, total_s=0.5, attempts=1)
        finish = FinishRecord(
            self.progress.next_seq, 0, reason, text=text, failure=failure, timings=timings
        )
        if logged:
            await self.append(finish)
        else:
            self.progress.add(finish)
        await self.settle(reason, failure)

    async def settle(self, reason: FinishReason, failure: Failure | None = None) -> None:
        """The terminal record of what is in `progress`, then the ack."""
        timings = Timings(queue_s=0.001, total_s=0.5, attempts=1)
        usage: Usage = self.progress.usage(len(self.request.prompt_token_ids))
        terminal = TerminalRecord(
            status_of_finish(reason),
            self.progress,
            usage,
            timings,
            self.request.sampling.seed,
            "w1",
            failure,
            self.request.model_revision,
            self.request.output.token_ids,
            len(self.request.prompt_token_ids),
        )
        await ownership.finish(
            self.node, self.id, self.epoch, terminal.status, encode_terminal(terminal)
        )
        await inbox.ack(self.node, self.id.partition, [(self.entry.priority, self.entry.entry_id)])

    async def cancel_flag(self) -> str:
        """Wait until the record asks for cancellation, and tell why."""
        while True:
            (answer,) = await ownership.heartbeat(
                self.node,
                self.id.partition,
                "s1",
                [(self.id, self.entry.priority, self.entry.entry_id, self.epoch)],
            )
            if isinstance(answer, ownership.CancelRequested):
                return answer.reason
            await asyncio.sleep(0.02)


class ScriptedScheduler:
    """Reads the inbox of one partition; hands out requests as they come."""

    def __init__(self, url: str, model: str = "tiny") -> None:
        self.node = Node(url)
        self.partition = Partition(model, 0)
        self.name = f"s-{secrets.token_hex(4)}"
        self.served: list[Led] = []
        self._waiting: list[InboxEntry] = []

    async def next(self) -> Led:
        """The next admitted request, owned and dispatched."""
        led = await self.own_next()
        (taken,) = await ownership.take(self.node, [(led.id, led.epoch)], "w1")
        assert isinstance(taken, ownership.Taken)
        led.request = request_from_body(parse_body(taken.body))
        return led

    async def own_next(self) -> Led:
        """The next admitted request, owned and not dispatched."""
        await inbox.create_groups(self.node, self.partition)
        while not self._waiting:
            self._waiting += await inbox.read_new(self.node, self.partition, self.name)
        entry = self._waiting.pop(0)
        assert entry.request_id is not None
        request_id = RequestId.parse(entry.request_id)
        assert request_id is not None
        (owned,) = await ownership.own(
            self.node, self.name, [(request_id, entry.priority, entry.entry_id)]
        )
        assert isinstance(owned, ownership.Owned)
        return Led(self.node, request_id, _UNKNOWN, entry, owned.log, owned.epoch)

    async def snapshot(
        self,
        *,
        num_workers: int = 1,
        drain_rate: float = 0.0,
        classes: list[ClassStatus] | None = None,
        positions: list[QueuePosition] | None = None,
        revision: str = "r1",
        draining: bool = False,
    ) -> None:
        """What a leader writes each second; its workers serve ``revision``, or leave."""
        worker = WorkerStatus("w1", "i1", revision, 0, 8, 0, 100, 16, draining, 5)
        status = PartitionStatus(
            self.partition,
            "leader:1",
            classes or [],
            [],
            [worker] * num_workers,
            0,
            drain_rate,
            1_000,
            positions or [],
        )
        await snapshots.store_snapshot(self.node, self.partition, encode_status(status))

    async def serve(self) -> None:
        """Answer every request at once with its `max_tokens` tokens, until cancelled."""
        while True:
            led = await self.next()
            self.served.append(led)
            await led.prompt()
            await led.tokens(led.request.stop.max_tokens)
            await led.finish(FinishReason.LENGTH)
