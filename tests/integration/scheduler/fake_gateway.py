"""A gateway without clients: admits requests, keeps its lease, and reads what counts in its log."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from common import keys
from common.domain import (
    GenerationRequest,
    OrderingHeader,
    Partition,
    Priority,
    RequestId,
    SamplingParams,
    StopConditions,
    TraceContext,
)
from common.log_fold import LogFold
from common.prefix_keys import sampled_hashes
from common.records import Progress
from common.streams import admission, cards, following, inbox, leases, ownership, reply_log
from common.streams.node import Node
from common.streams.scripts import run_scripts
from common.tracing import NO_TRACE
from common.wire.card import encode_card
from common.wire.records import TerminalRecord, decode_log_batch, decode_terminal
from common.wire.request import encode_body, encode_header
from tests.integration.scheduler.fake_worker import MODEL, make_card
from tests.support.time_scale import scaled

BOUNDS = admission.QueueBounds(max_requests=1000, max_tokens=1_000_000)
PARTITION = Partition(MODEL, 0)


@dataclass
class FakeGateway:
    """One incarnation; its log is followed by ``run``."""

    node: Node
    gateway_id: str = "g1"
    renews: bool = True
    progress: dict[str, Progress] = field(default_factory=dict)
    folds: dict[str, LogFold] = field(default_factory=dict)
    num_duplicates: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._renew())

    async def admit(
        self,
        prompt: tuple[int, ...] = (1, 2, 3),
        max_tokens: int = 5,
        *,
        budget_s: float = 60.0,
        hold: bool = True,
        header: bytes | None = None,
        body: bytes | None = None,
        trace: TraceContext = NO_TRACE,
        priority: Priority = Priority.NORMAL,
        tenant: str = "t",
        has_deadline: bool = False,
        revision: str = "r1",
        block_tokens: int = 0,
        partition: int = 0,
        cancelled: str = "",
    ) -> RequestId:
        """``block_tokens``: the prompt's beginnings are named, as a gateway does it for workers with such blocks.

        ``cancelled``: for this reason, before any scheduler can have done anything: Redis does both without a pause.
        """
        request_id = replace(RequestId.make(MODEL, 1), partition=Partition(MODEL, partition))
        request = GenerationRequest(
            request_id=str(request_id),
            model=MODEL,
            model_revision=revision,
            prompt_token_ids=prompt,
            tenant=tenant,
            sampling=SamplingParams(seed=7),
            stop=StopConditions(max_tokens=max_tokens),
        )
        hashes, step_tokens = sampled_hashes(request, block_tokens)
        ordering = OrderingHeader(
            tenant,
            priority,
            len(prompt),
            max_tokens,
            hold=hold,
            model_revision=revision,
            trace=trace,
            has_deadline=has_deadline,
            prefix_hashes=hashes,
            prefix_step_tokens=step_tokens,
        )
        submission = admission.Submission(
            request_id=request_id,
            priority=priority,
            tenant=tenant,
            prompt_tokens=len(prompt),
            budget_ms=round(budget_s * 1000),
            log=self.gateway_id,
            start="0-0",
            follower=f"{self.gateway_id}:1",
            header=encode_header(ordering) if header is None else header,
            body=encode_body(request) if body is None else body,
            resume_grace_ms=0,
        )
        calls = [admission.admission_call(submission, BOUNDS)]
        if cancelled:
            calls.append(following.cancel_call(request_id, cancelled))
        answer, *_ = await run_scripts(self.node, calls, bound_s=30)
        assert isinstance(admission.read_admission(answer), admission.Admitted)
        return request_id

    async def ended(self, request_id: RequestId, within_s: float = 60.0) -> Progress:
        """What the log says of a request once its last finish is there."""
        await self.until(request_id, lambda p: p.last_finish is not None, within_s)
        return self.progress[str(request_id)]

    async def until(self, request_id: RequestId, what, within_s: float = 60.0) -> None:
        key = str(request_id)
        async with asyncio.timeout(scaled(within_s)), self.changed:
            await self.changed.wait_for(lambda: key in self.progress and what(self.progress[key]))

    async def terminal(self, request_id: RequestId, within_s: float = 60.0) -> TerminalRecord:
        """The terminal record, once it is there."""
        async with asyncio.timeout(scaled(within_s)):
            while True:
                record = await following.read_record(self.node, request_id, bound_s=5)
                if record is not None and record.terminal:
                    return decode_terminal(record.terminal)
                await asyncio.sleep(0.01)

    async def _follow(self) -> None:
        after = "0-0"
        # A reader's mark: without it the log may be trimmed behind the requests' checkpoints before it was read.
        await reply_log.append(self.node, self.gateway_id, b"", {"reader": 0})
        while True:
            for entry in await reply_log.read_on(self.node, self.gateway_id, after):
                after = entry.id
                async with self.changed:
                    for record in decode_log_batch(entry.payload):
                        fold = self.folds.setdefault(record.request_id, LogFold())
                        fact = fold.apply(record)
                        if fact is not None:
                            self.progress.setdefault(record.request_id, Progress()).add(fact)
                    self.changed.notify_all()

    async def _renew(self) -> None:
        while True:
            if self.renews:
                await leases.renew_gateway(self.node, self.gateway_id, bound_s=60)
            await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def serving(node: Node, gateway_id: str = "g1") -> AsyncIterator[FakeGateway]:
    gateway = FakeGateway(node, gateway_id)
    task = asyncio.create_task(gateway.run())
    try:
        yield gateway
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()


async def know_the_model(node: Node) -> None:
    """Let schedulers lead the model's partition without any worker."""
    await cards.store_card(node, MODEL, "r1", encode_card(make_card()))


async def own_by(node: Node, owner: str, request_id: RequestId) -> ownership.Owned:
    """Take the one entry of the inbox as a scheduler called `owner` did, before it was lost."""
    (entry,) = await inbox.read_new(node, PARTITION, owner)
    (owned,) = await ownership.own(node, owner, [(request_id, entry.priority, entry.entry_id)])
    assert isinstance(owned, ownership.Owned)
    return owned


async def pending_of(node: Node) -> int:
    """Entries in the inbox streams."""
    lengths = [await node.call(lambda c, p=p: c.xlen(keys.inbox(PARTITION, p))) for p in Priority]
    return sum(lengths)


async def eventually_empty(node: Node, within_s: float = 60.0) -> None:
    """The inbox and the log's marks become empty: everything is acked, nothing keeps the log."""
    async with asyncio.timeout(scaled(within_s)):
        # Another process's doing: there is no event to wait for.
        while await _left_over(node):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _left_over(node: Node) -> int:
    marks = await node.call(lambda client: client.zrange(keys.log_marks("g1"), 0, -1))
    return await pending_of(node) + len(set(marks) - {b"reader"})
