"""Two schedulers that both think that they lead: they take each other's requests, and the output stays one."""

import asyncio

import pytest

from common.domain import Partition, RequestId
from common.request_status import RequestStatus
from common.streams import leases
from common.streams.leases import LeaderLease
from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import (
    PARTITION,
    FakeGateway,
    eventually_empty,
    serving,
)
from tests.integration.scheduler.fake_worker import FakeWorker, expected, text_of, working
from tests.integration.scheduler.running_scheduler import RunningScheduler, scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NUM_TOKENS = 800
SLOW_STEP_S, FAST_STEP_S = 0.02, 0.001
NUM_TAKEN = 8
"""Requests that each leader is to take from the other before the contest may end."""


class Believers:
    """Schedulers whose renewals succeed in their own eyes only, as if their clocks stood still: Redis hears of none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instances: set[str] = set()
        self._hold = leases.hold_leader_lease
        monkeypatch.setattr(leases, "hold_leader_lease", self._hold_or_believe)

    async def _hold_or_believe(
        self, node: Node, partition: Partition, lease: LeaderLease, *, bound_s: float
    ) -> LeaderLease:
        if lease.scheduler_id.rpartition("-")[0] in self.instances:
            return lease
        return await self._hold(node, partition, lease, bound_s=bound_s)


async def leader_is(node: Node, scheduler: RunningScheduler) -> None:
    """Wait until Redis says so."""
    async with asyncio.timeout(120):
        while True:
            seen = await leases.read_leader(node, PARTITION)
            if seen is not None and seen.address == scheduler.address:
                return
            await asyncio.sleep(0.05)


async def assert_exact(
    gateway: FakeGateway, prompt: tuple[int, ...], request_id: RequestId
) -> None:
    """Log, record and usage are those of an undisturbed run."""
    progress = await gateway.ended(request_id, within_s=150)
    tokens = expected(prompt, NUM_TOKENS)
    assert progress.choices[0].token_ids == tokens
    assert progress.choices[0].text == "".join(map(text_of, tokens))
    terminal = await gateway.terminal(request_id, within_s=60)
    assert terminal.status is RequestStatus.FINISHED
    assert terminal.progress.choices[0].token_ids == tokens
    assert (terminal.usage.prompt_tokens, terminal.usage.completion_tokens) == (
        len(prompt),
        NUM_TOKENS,
    )


def sessions(worker: FakeWorker) -> int:
    """How many it has had so far."""
    return sum(message.HasField("welcome") for message in worker.received)


async def test_two_leaders_keep_one_output(
    redis_server: RedisServer, node: Node, monkeypatch: pytest.MonkeyPatch
):
    """Both lead, dispatch and write to one log for a while, each taking from the other again and again.

    What was running, what was waiting and what comes meanwhile has exactly its tokens, its usage and one record; when the
    former leader learns the truth it stands by, and service goes on.
    """
    believers = Believers(monkeypatch)
    first = FakeWorker("w1", step_s=SLOW_STEP_S, max_seqs=4)
    second = FakeWorker("w2", "i2", step_s=SLOW_STEP_S, max_seqs=4)
    async with (
        scheduling(redis_server.url, "s1") as former,
        serving(node) as gateway,
        working(first, former.address),
    ):
        prompts = [(n, 2) for n in range(6)]
        ids = [await gateway.admit(prompt, max_tokens=NUM_TOKENS) for prompt in prompts]
        await gateway.until(ids[0], lambda p: p.next_seq >= 5)
        async with scheduling(redis_server.url, "s2") as latter:
            believers.instances.add("s1")
            await leader_is(node, latter)
            async with working(second, latter.address):
                for number in range(4):
                    prompts.append((number, 5))
                    ids.append(await gateway.admit(prompts[-1], max_tokens=NUM_TOKENS))
                for one in (former, latter):
                    await one.metric_reaches("headrace_takeovers_total", NUM_TAKEN, within_s=120)
                assert first.assigns
                assert second.assigns
                first.step_s = second.step_s = FAST_STEP_S
                for prompt, request_id in zip(prompts, ids, strict=True):
                    await assert_exact(gateway, prompt, request_id)
                await eventually_empty(node, within_s=60)
                num_sessions = sessions(first)
                believers.instances.clear()
                await first.until(lambda w: sessions(w) > num_sessions, within_s=60)
                fresh = await gateway.admit((9, 9), max_tokens=NUM_TOKENS)
                await assert_exact(gateway, (9, 9), fresh)
                await leader_is(node, latter)
                assert not former.task.done()
