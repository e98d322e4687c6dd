"""Clients that vanish, in every way and at every stage: their work ends, bystanders notice nothing (B17)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as pb
from tests.support.crowd import Crowd, crowd_at
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.tcp_proxy import TcpProxy, running_proxy
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_SEQS = 16
# Few tokens a step: a long prompt is under way for seconds.
FLAGS = [
    *(*SIMULATED, "--step-ms", "15", "--max-seqs", str(NUM_SEQS), "--max-batch-tokens", "48"),
    *("--context-tokens", "16384", "--kv-blocks", "16384"),
]
NUM_DECODING, NUM_BATCH, NUM_LONG, NUM_QUEUED, NUM_HIGH, NUM_WITNESSES = 6, 2, 4, 36, 2, 4
NUM_CROWD = NUM_DECODING + NUM_BATCH + NUM_LONG + NUM_QUEUED + NUM_HIGH
LONG_PROMPT = "A long story of a mill. " * 260
# By themselves they end after a minute and more: who has an end before is told CANCELLED, as the records say.
MOST = {"model": "sim", "max_tokens": 4000, "ignore_eos": True}
WAYS = ("cancelled", "killed", "blackholed", "gateway killed")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack(
        gateways=2,
        worker_flags=FLAGS,
        scheduler_flags=["--orphan-grace-s", "3"],
        gateway_flags=["--client-ping-s", "2"],
    ) as started:
        yield started


@contextlib.asynccontextmanager
async def a_crowd(stack: Stack, others: set[str]) -> AsyncIterator[tuple[Crowd, TcpProxy]]:
    """Calls at every stage at the first gateway: decoding, at a long prompt, waiting, pre-empted; and what is between.

    ``others`` are open beside them, and may end meanwhile.
    """
    port, num_known = int(stack.targets[0].rpartition(":")[2]), 0
    num_preempted = preempted(stack)
    with running_proxy(port) as proxy, crowd_at(f"127.0.0.1:{proxy.port}") as crowd:
        for number, prompt, priority, num_running in (
            (NUM_DECODING, "decodes", "normal", NUM_DECODING),
            (NUM_BATCH, "makes room", "batch", NUM_DECODING + NUM_BATCH),
            (NUM_LONG, LONG_PROMPT, "normal", NUM_DECODING + 1),  # they take turns
            (NUM_QUEUED, "waits", "normal", NUM_DECODING + 1),
            (NUM_HIGH, "takes room", "high", NUM_DECODING + 1),
        ):
            crowd.ask(number, prompt, priority=priority, **MOST)
            num_known += number
            await asyncio.to_thread(
                eventually,
                lambda n=num_known, r=num_running: is_there(stack, others, n, r),
            )
        await asyncio.to_thread(eventually, lambda: preempted(stack) >= num_preempted + NUM_HIGH)
        yield crowd, proxy


def is_there(stack: Stack, others: set[str], num_known: int, num_running: int) -> bool:
    """Whether so many have an entry and so many run, beside what is still open of the others."""
    found = open_ids(stack)
    return len(found - others) == num_known and running(stack) >= len(found & others) + num_running


def preempted(stack: Stack) -> float:
    """Requests that were asked to make room so far."""
    return stack.metric(stack.schedulers[0], "headrace_preemptions_asked_total")


def running(stack: Stack) -> float:
    """Requests that the worker runs."""
    return stack.metric(stack.workers[0], "headrace_num_requests_running")


def open_ids(stack: Stack) -> set[str]:
    """Requests that have an inbox entry."""
    client = stack.redis_client()
    return {
        fields[b"id"].decode()
        for key in client.keys("hr:*:inbox:*")
        for _, fields in client.xrange(key)
    }


@pytest.mark.parametrize("way", WAYS)
async def test_who_is_gone_is_worked_for_no_more(stack: Stack, way: str):
    """Cancelled calls, a killed client, swallowed packets, a killed gateway: CANCELLED, exact usage, KVFREE, PELZERO."""
    async with (
        AsyncClient(stack.targets[1]) as client,
        witnessed(stack, client, count=NUM_WITNESSES, tokens=500),
    ):
        others = open_ids(stack)
        async with a_crowd(stack, others) as (crowd, proxy):
            ids = open_ids(stack) - others
            assert len(ids) == NUM_CROWD
            await asyncio.to_thread(hurt, way, stack, crowd, proxy)
            await asyncio.to_thread(
                eventually,
                lambda: not open_ids(stack) & ids and running(stack) <= NUM_WITNESSES,
            )
        await check_records(client, ids, goes_on=way == "gateway killed")
    if way == "gateway killed":
        stack.gateways[0].start()
        await asyncio.to_thread(stack.gateways[0].wait_until_ready)


def hurt(way: str, stack: Stack, crowd: Crowd, proxy: TcpProxy) -> None:
    match way:
        case "cancelled":
            crowd.cancel()
        case "killed":
            crowd.kill()
        case "blackholed":
            proxy.blackhole()
        case "gateway killed":
            stack.gateways[0].kill()


async def check_records(client: AsyncClient, ids: set[str], *, goes_on: bool) -> None:
    """Each says CANCELLED, with the usage of exactly the tokens that it holds; every stage was met.

    What ``goes_on`` until its gateway counts as lost may begin meanwhile.
    """
    num_tokens = []
    for request_id in ids:
        shown = await client.get_request(request_id)
        assert shown.status == pb.REQUEST_STATUS_CANCELLED, shown
        tokens = sum(len(choice.token_ids) for choice in shown.result.choices)
        assert shown.usage.completion_tokens == tokens
        assert bool(shown.usage.prompt_tokens) or not tokens
        num_tokens.append(tokens)
    assert sum(tokens > 0 for tokens in num_tokens) >= NUM_DECODING + NUM_BATCH
    if not goes_on:
        num_slots = NUM_SEQS - NUM_DECODING - NUM_LONG  # of witnesses that have ended, too
        assert num_tokens.count(0) >= NUM_QUEUED - num_slots
