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

NUM_TOKENS = 400
SLOW_STEP_S, FAST_STEP_S = 0.05, 0.001
ACCENT = 1000  # tokens are below it
NUM_TAKEN = 12
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


async def admitted(gateway: FakeGateway, prompt: tuple[int, ...], count: int) -> RequestId:
    """With more time than any machine needs: who takes from whom for long gets on slowly."""
    return await gateway.admit(prompt, max_tokens=count, budget_s=600.0)


async def assert_one_output(
    gateway: FakeGateway, request_id: RequestId, prompt: tuple[int, ...], count: int
) -> None:
    """Each position has one token, of whichever worker; the record holds what readers of the log were shown, and usage
    counts just that."""
    progress = await gateway.ended(request_id, within_s=150)
    shown = progress.choices[0].token_ids
    assert [token % ACCENT for token in shown] == expected(prompt, count)
    assert progress.choices[0].text == "".join(map(text_of, shown))
    terminal = await gateway.terminal(request_id, within_s=60)
    assert terminal.status is RequestStatus.FINISHED
    assert terminal.progress.choices[0].token_ids == shown
    assert terminal.progress.choices[0].text == progress.choices[0].text
    usage = terminal.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), count)


def sessions(worker: FakeWorker) -> int:
    """How many it has had so far."""
    return sum(message.HasField("welcome") for message in worker.received)


async def test_two_leaders_keep_one_output(
    redis_server: RedisServer, node: Node, monkeypatch: pytest.MonkeyPatch
):
    """Both lead, dispatch and write to one log for a while, each taking from the other again and again.

    Their workers disagree about every token, so that one that got past a fence would show. What was running, what was
    waiting and what comes meanwhile has one output and one record of it; when the former leader learns the truth it
    stands by, and service goes on.
    """
    believers = Believers(monkeypatch)
    first = FakeWorker("w1", step_s=SLOW_STEP_S, max_seqs=4)
    second = FakeWorker("w2", "i2", step_s=SLOW_STEP_S, max_seqs=4, accent=ACCENT)
    async with (
        scheduling(redis_server.url, "s1") as former,
        serving(node) as gateway,
        working(first, former.address),
    ):
        asked = [((n, 2), NUM_TOKENS) for n in range(4)]
        ids = [await admitted(gateway, *one) for one in asked]
        await gateway.until(ids[0], lambda p: p.next_seq >= 5)
        async with scheduling(redis_server.url, "s2") as latter:
            believers.instances.add("s1")
            await leader_is(node, latter)
            async with working(second, latter.address):
                for number in range(4):  # some end while both lead
                    asked.append(((number, 5), 10 if number % 2 else NUM_TOKENS))
                    ids.append(await admitted(gateway, *asked[-1]))
                for one, worker in ((former, first), (latter, second)):
                    await one.metric_reaches("headrace_takeovers_total", NUM_TAKEN, within_s=120)
                    num_assigns = len(worker.assigns)
                    await worker.until(lambda w, n=num_assigns: len(w.assigns) > n)
                num_sessions = sessions(first)
                believers.instances.clear()
                await first.until(lambda w: sessions(w) > num_sessions, within_s=60)
                first.step_s = second.step_s = FAST_STEP_S
                asked.append(((9, 9), NUM_TOKENS))
                ids.append(await admitted(gateway, *asked[-1]))
                for request_id, one in zip(ids, asked, strict=True):
                    await assert_one_output(gateway, request_id, *one)
                await eventually_empty(node, within_s=60)
                await leader_is(node, latter)
                assert not former.task.done()
