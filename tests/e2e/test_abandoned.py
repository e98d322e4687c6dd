"""A request lives as long as anybody follows it through a gateway that lives, and no longer than its grace (B17)."""

import asyncio

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FLAGS = [*SIMULATED, "--step-ms", "20", "--context-tokens", "8192"]


async def follow(target: str, request_id: str, count: TokenCount) -> None:
    """Follow a request through one gateway, for as long as that lives."""
    async with (
        AsyncClient([target]) as client,
        client.attach(request_id, reattach=False) as stream,
    ):
        async for event in stream:
            count.add(event.count)


def running(stack: Stack) -> float:
    """Requests that the worker runs."""
    return stack.metric(stack.workers[0], "headrace_num_requests_running")


async def test_the_last_gateway_takes_the_request_along():
    """Admitted at A, attached at B; A dies: it goes on. B dies: cancelled after the grace, KV free, entry gone."""
    with running_stack(
        gateways=3, worker_flags=FLAGS, scheduler_flags=["--orphan-grace-s", "3"]
    ) as stack:
        first, second, third = stack.targets
        count, later = TokenCount(), TokenCount()
        async with AsyncClient([first]) as client:
            ids: asyncio.Queue[str] = asyncio.Queue()
            admitted = asyncio.create_task(
                collect(
                    client, "A long tale.", model="sim", max_tokens=5000, ignore_eos=True,
                    reattach=False, count=count, on_event=lambda event: _note(event, ids),
                )
            )  # fmt: skip
            request_id = await asyncio.wait_for(ids.get(), 20)
            await count.more(5)
            attached = asyncio.create_task(follow(second, request_id, later))
            await later.more(5)
            stack.gateways[0].kill()
            await later.more(500)  # ten seconds: past A's lease and the grace
            assert running(stack) == 1
            stack.gateways[1].kill()
            await asyncio.gather(admitted, attached, return_exceptions=True)
        await asyncio.to_thread(eventually, lambda: running(stack) == 0)
        await asyncio.to_thread(eventually, lambda: stack.pending_entries() == 0)
        assert stack.metric(stack.workers[0], "headrace_kv_cache_usage_ratio") == 0
        async with AsyncClient([third]) as client:
            shown = await client.get_request(request_id)
        assert shown.status == gen.REQUEST_STATUS_CANCELLED
        assert shown.usage.completion_tokens > 500


def _note(event, ids: asyncio.Queue[str]) -> None:
    if event.WhichOneof("event") == "accepted":
        ids.put_nowait(event.accepted.request_id)
