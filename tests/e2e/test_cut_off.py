"""Gateways lose Redis, one of them or all, for longer than a request outlives its gateway: clients of several gateways
lose nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.client import AsyncClient, Client, TokenStream
from headrace.v1 import generation_pb2 as pb
from tests.support.outcomes import Outcome, TokenCount, collect, follow
from tests.support.processes import ServiceProcess
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.tcp_proxy import TcpProxy, running_proxy
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_STREAMS, NUM_TOKENS = 6, 600
# By themselves they run for half a minute: a gateway's lease and the grace of its requests (15 s) are over long before.
SLOW = [*SIMULATED, "--step-ms", "50"]
FAST = [*SIMULATED, "--step-ms", "15"]
# Above the 25 s for which a client looks for a gateway that is gone.
PAUSE_S = 35.0
# Whoever still waits then waits for a gateway that is cut off.
LONG_S = 120.0


@dataclass
class InThread:
    """A stream of the client for threads, read from a loop."""

    stream: TokenStream

    @property
    def request_id(self) -> str | None:
        return self.stream.request_id

    def close(self) -> None:
        self.stream.close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (event := await asyncio.to_thread(next, self.stream, None)) is not None:
            yield event


def asked(number: int) -> tuple[str, dict[str, Any]]:
    """Greedy and seeded ones."""
    return f"a tale of {number} mills", {
        "model": "sim",
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "temperature": float(number % 2),
        "seed": number,
    }


async def in_thread(client: Client, number: int, count: TokenCount) -> Outcome:
    prompt, options = asked(number)
    outcome = Outcome()
    with client.stream(prompt, **options) as stream:
        await follow(InThread(stream), outcome, count=count)
    return outcome


async def streams(targets: Sequence[str], count: TokenCount) -> list[Outcome]:
    """To their ends, half of them by each client of the library; all of them begin at the first target."""
    async with AsyncClient(targets) as aio:
        with Client(targets) as sync:
            return await asyncio.gather(
                *(
                    in_thread(sync, number, count)
                    if number < NUM_STREAMS // 2
                    else collect(aio, asked(number)[0], count=count, **asked(number)[1])
                    for number in range(NUM_STREAMS)
                )
            )


async def expect_same(
    target: str, outcomes: Sequence[Outcome], undisturbed: Sequence[Outcome]
) -> None:
    """What the streams brought, and what is on record, is what they bring where nothing happens."""
    async with AsyncClient(target) as client:
        for got, expected in zip(outcomes, undisturbed, strict=True):
            assert expected.error is None, expected.error
            assert got.error is None, (got.request_id, got.error)
            assert got.answer == expected.answer, got.request_id
            assert got.counted == expected.counted
            record = await client.get_request(got.request_id)
            assert record.status == pb.REQUEST_STATUS_FINISHED
            assert [*record.result.choices[0].token_ids] == expected.token_ids


@contextlib.contextmanager
def linked_gateway(stack: Stack) -> Iterator[tuple[str, TcpProxy]]:
    """One more gateway, whose way to Redis is its own."""
    with running_proxy(stack.redis.port) as link:
        process = ServiceProcess(
            "gateway",
            flags=["--grpc-port", "0", "--metrics-port", "0"],
            environment={"HEADRACE_REDIS_URL": f"redis://127.0.0.1:{link.port}/0"},
        )
        with process as gateway:
            yield gateway.endpoints["grpc"], link


async def test_a_gateway_that_alone_lost_redis_is_left_in_time():
    """It does not come back while they run: each stream goes on through the other one, with the undisturbed tokens."""
    with running_stack(worker_flags=SLOW) as stack, linked_gateway(stack) as (first, link):
        (second,) = stack.targets
        count = TokenCount()
        disturbed = asyncio.create_task(streams([first, second], count))
        undisturbed = asyncio.create_task(streams([second], TokenCount()))
        await count.more(5 * NUM_STREAMS)
        link.blackhole()
        await asyncio.wait([disturbed], timeout=scaled(LONG_S))
        link.pass_through()
        await expect_same(second, await disturbed, await undisturbed)


async def test_a_redis_that_is_away_for_everybody_is_waited_for():
    """Longer than a client looks for a gateway that is gone, and one is gone meanwhile: each stream goes on in the end."""
    with running_stack(gateways=2, worker_flags=FAST) as stack:
        first, second = stack.targets
        undisturbed = await streams([second], TokenCount())
        counts = TokenCount(), TokenCount()
        running = [
            asyncio.create_task(streams([first, second], counts[0])),
            asyncio.create_task(streams([second, first], counts[1])),
        ]
        for count in counts:
            await count.more(5 * NUM_STREAMS)
        stack.redis.pause()
        stack.gateways[0].kill()
        await asyncio.sleep(PAUSE_S)
        stack.redis.resume()
        for outcomes in await asyncio.gather(*running):
            await expect_same(second, outcomes, undisturbed)
