"""A gateway that says nothing any more is noticed by its clients, who go on through another one before they count as gone."""

import asyncio

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.stack import SIMULATED, running_stack
from tests.support.tcp_proxy import running_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# By themselves they run for half a minute: a gateway's lease and the grace of its requests are over long before.
FLAGS = [*SIMULATED, "--step-ms", "50"]
NUM_STREAMS, NUM_TOKENS = 6, 600


async def streams(client: AsyncClient, count: TokenCount) -> list[Outcome]:
    """Greedy and seeded ones, all to their ends."""
    return await asyncio.gather(
        *(
            collect(
                client,
                f"a tale of {number} mills",
                model="sim",
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                temperature=float(number % 2),
                seed=number,
                count=count,
            )
            for number in range(NUM_STREAMS)
        )
    )


@pytest.mark.parametrize("way", ["asleep", "cut off"])
async def test_a_silent_gateway_is_left_in_time(way: str):
    """Stopped with SIGSTOP and never woken, or behind swallowed packets: each stream ends with the undisturbed tokens."""
    with running_stack(gateways=2, worker_flags=FLAGS) as stack:
        first, second = stack.targets
        with running_proxy(int(first.rpartition(":")[2])) as path:
            async with (
                AsyncClient([f"127.0.0.1:{path.port}", second]) as client,
                AsyncClient(second) as other,
            ):
                count = TokenCount()
                disturbed = asyncio.create_task(streams(client, count))
                undisturbed = asyncio.create_task(streams(other, TokenCount()))
                await count.more(5 * NUM_STREAMS)
                if way == "asleep":
                    stack.gateways[0].pause()
                else:
                    path.blackhole(swallows_ends=True)
                for got, expected in zip(await disturbed, await undisturbed, strict=True):
                    assert expected.error is None, expected.error
                    assert got.error is None, (got.request_id, got.error)
                    assert got.answer == expected.answer, got.request_id
                    assert got.counted == expected.counted
