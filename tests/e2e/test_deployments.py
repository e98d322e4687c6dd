"""The whole stack on a Redis behind Sentinel and on a cluster: what dies there, or here, changes no answer."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.processes import ServiceProcess
from tests.support.redis_cluster import running_cluster
from tests.support.redis_sentinel import SentinelStack, running_sentinel
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_STREAMS = 6
FLAGS = [*SIMULATED, "--step-ms", "15"]


async def streams(client: AsyncClient, count: TokenCount) -> list[Outcome]:
    """Some answers at once, greedy and drawn."""
    return await asyncio.gather(
        *(
            collect(
                client,
                f"request {number}",
                count=count,
                model="sim",
                max_tokens=300,
                ignore_eos=True,
                temperature=float(number % 2),
                seed=number,
            )
            for number in range(NUM_STREAMS)
        )
    )


async def assert_unchanged(stack: Stack, disturb: Callable[[], None]) -> None:
    """Answers that are disturbed while they run equal those that are not, and the next ones, too."""
    async with AsyncClient(stack.targets) as client:
        undisturbed = await streams(client, TokenCount())
        count = TokenCount()
        disturbed = asyncio.create_task(streams(client, count))
        await count.more(NUM_STREAMS * 10)
        await asyncio.to_thread(disturb)
        for outcomes in (await disturbed, await streams(client, TokenCount())):
            assert [outcome.error for outcome in outcomes] == [None] * NUM_STREAMS
            assert [outcome.answer for outcome in outcomes] == [o.answer for o in undisturbed]


async def test_the_death_of_a_master_changes_no_stream():
    """kill -9 of the master that a Sentinel replaces: requests that the replica knew of go on, each as if nothing were."""
    with running_sentinel() as redis, stack_on(redis.url) as stack:
        await assert_unchanged(stack, lambda: lose_master(redis))


def lose_master(redis: SentinelStack) -> None:
    """What was accepted is on the replica; of what comes after it the last moments may be lost."""
    redis.wait_in_step()
    redis.fail_over()


async def test_a_takeover_on_a_cluster_changes_no_stream():
    """kill -9 of the leading scheduler, with the partition's keys and the gateways' logs on three nodes."""
    with running_cluster() as redis, stack_on(redis.url) as stack:
        await assert_unchanged(stack, lambda: leader(stack).kill())


def leader(stack: Stack) -> ServiceProcess:
    """The scheduler that has taken the only partition's lead."""
    (found,) = (s for s in stack.schedulers if stack.metric(s, "headrace_leaderships_total") > 0)
    return found


def stack_on(url: str) -> AbstractContextManager[Stack]:
    """Two schedulers, of which one leads, a gateway and a worker."""
    return running_stack(schedulers=2, worker_flags=FLAGS, redis_url=url)
