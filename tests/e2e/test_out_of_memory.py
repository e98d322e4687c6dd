"""A prompt that takes more memory than there is: three workers are lost to it, no more, and innocents lose nothing (B29)."""

import asyncio
from typing import Any

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.memory_limit import memory_limit
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.processes import ServiceProcess
from tests.support.stack import SIMULATED, running_stack
from tests.support.supervision import supervised

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_INNOCENTS = 20
# A worker needs some 90 bytes for each of these tokens.
HUGE = [97] * 1_000_000
ROOM_BYTES = 40 * 2**20
FLAGS = [
    *(*SIMULATED, "--step-ms", "10", "--max-seqs", "32", "--worker-id", "worker-0"),
    *("--metrics-port", "0", "--context-tokens", "1100000", "--kv-blocks", "70000"),
    *("--max-batch-tokens", "65536"),
]


async def ask(client: AsyncClient, prompt: Any, number: int, **options: Any) -> Outcome:
    given = {"model": "sim", "ignore_eos": True, "seed": number, "temperature": float(number % 2)}
    # No deadline of its own: by the pace of innocents the prompt would take too long.
    return await collect(client, prompt, **given | options)


async def innocents(client: AsyncClient) -> list[Outcome]:
    return await asyncio.gather(
        *(ask(client, f"innocent {n}", n, max_tokens=200) for n in range(NUM_INNOCENTS))
    )


async def test_a_prompt_for_which_the_kernel_kills():
    """Exactly three deaths, each by a lack of memory, the third alone; DEAD with POISON_REQUEST; twenty innocents beside
    it, and twenty behind it, have the undisturbed tokens."""
    with running_stack(workers=0, gateway_flags=["--queue-max-tokens", "10000000"]) as stack:
        worker = ServiceProcess(
            "worker",
            flags=FLAGS,
            environment={"HEADRACE_SCHEDULERS": stack.schedulers[0].endpoints["grpc"]},
        )
        with memory_limit(worker) as limit:
            worker.start()
            await asyncio.to_thread(worker.wait_until_ready)
            async with AsyncClient(stack.targets) as client:
                undisturbed = await innocents(client)
                limit.set(limit.used_bytes + ROOM_BYTES)
                async with supervised(worker) as (kept,):
                    load = asyncio.create_task(innocents(client))
                    dead = await ask(client, HUGE, 0, max_tokens=4)
                    assert dead.error is not None
                    assert (dead.error.code, dead.error.reason) == ("INTERNAL", "POISON_REQUEST")
                    assert_equal_runs(await load, undisturbed)
                    await asyncio.to_thread(eventually, lambda: kept.num_deaths == 3)
                    assert_equal_runs(await innocents(client), undisturbed)
                    assert kept.num_deaths == 3
                shown = await client.get_request(dead.request_id)
                assert (shown.status, shown.attempts) == (gen.REQUEST_STATUS_DEAD, 3)
            eventually(lambda: stack.pending_entries() == 0)
            scheduler = stack.schedulers[0]
            assert stack.metric(scheduler, "headrace_worker_losses_total") == 3
            assert stack.metric(scheduler, "headrace_dead_letters_total") == 1


def assert_equal_runs(got: list[Outcome], undisturbed: list[Outcome]) -> None:
    for one, expected in zip(got, undisturbed, strict=True):
        assert one.error is None, (one.request_id, one.error)
        assert one.answer == expected.answer
        assert one.counted == expected.counted
