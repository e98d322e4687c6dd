"""The planner over the wire: deadlines in a full queue (B18, B21), one tenant beside many requests of another (B38),
and what pre-emption does for short urgent requests beside a full batch of long ones."""

import asyncio
import contextlib
import re
import time

import pytest

from headrace.cli.__main__ import main
from headrace.client import AsyncClient, HeadraceError, build_request
from headrace.v1.inference_service_pb2 import GenerateRequest
from tests.bench.simulate.report import jain
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]

NUM_LATE = 100
NUM_LONG = 2500


async def ask(client: AsyncClient, tokens: int, **options) -> int:
    """One answer of exactly so many tokens; how many came."""
    answer = await client.generate(
        "a question",
        model="sim",
        max_tokens=tokens,
        ignore_eos=True,
        **options,
    )
    return answer.usage.completion_tokens


def hurried() -> GenerateRequest:
    """A request with a deadline of its own, while the call would wait for longer: the answer is the server's."""
    request = build_request("a question", model="sim", max_tokens=4)
    request.timeout.FromMilliseconds(100)
    return request


async def first_token_s(client: AsyncClient, **options) -> float:
    """Seconds from the call to the first token of a short answer, which is read to its end."""
    began_s, first_s = time.perf_counter(), None
    async for event in client.stream(
        "a question", model="sim", max_tokens=4, ignore_eos=True, **options
    ):
        if event.count and first_s is None:
            first_s = time.perf_counter() - began_s
    assert first_s is not None
    return first_s


async def wait_told(client: AsyncClient, stack: Stack) -> None:
    """`headrace status ID` prints of a NORMAL request that waits how long it will, once its leader has told."""
    async with client.stream("a question", model="sim", max_tokens=4) as stream:
        request_id = (await anext(aiter(stream))).accepted.request_id
        async with asyncio.timeout(scaled(60)):
            # Told with the snapshots, once starts were seen for a second: other processes' doing, no event here.
            while "est." not in (await client.get_request(request_id)).waiting_for:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        # In this process: while another one started, what was waited for might come.
        environ = {"HEADRACE_TARGET": stack.targets[0]}
        assert await asyncio.to_thread(main, ["status", request_id], environ) == 0


async def test_what_is_late_in_the_queue_never_reaches_a_worker():
    """Requests with 100 ms behind a worker that is busy for long: all end in the queue, and the queue is empty then (B18, B21)."""
    flags = [*SIMULATED, "--step-ms", "10", "--max-seqs", "1"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            holder = asyncio.create_task(ask(client, 1500))
            await asyncio.to_thread(
                eventually,
                lambda: stack.metric(stack.schedulers[0], "headrace_dispatched_total") == 1,
            )
            late = await asyncio.gather(
                *(client.generate(hurried()) for _ in range(NUM_LATE)), return_exceptions=True
            )
            for error in late:
                assert isinstance(error, HeadraceError)
                assert error.reason == "DEADLINE_EXCEEDED"
                assert error.metadata["stage"] == "queue"
            assert stack.metric(stack.schedulers[0], "headrace_dispatched_total") == 1
            await asyncio.to_thread(eventually, lambda: stack.pending_entries() == 1)
            assert not holder.done()
            assert await holder == 1500


async def test_a_deadline_that_ends_in_the_prefill_of_a_long_prompt():
    """Between two steps of the prompt, not behind its last: the error says so, no token came, and the worker is free (B21)."""
    # Steps of 128 tokens take half a second each, the prompt 14 s: nothing but the deadline ends it before.
    flags = [*SIMULATED, "--prefill-tokens-per-s", "256", "--max-batch-tokens", "128"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            late = build_request([50] * 3_600, model="sim", max_tokens=4)
            late.timeout.FromSeconds(5)
            with pytest.raises(HeadraceError) as caught:
                await client.generate(late)
            assert caught.value.reason == "DEADLINE_EXCEEDED"
            assert caught.value.metadata["stage"] == "prefill"
            running = "headrace_num_requests_running"
            await asyncio.to_thread(
                eventually, lambda: stack.metric(stack.workers[0], running) == 0
            )
            assert stack.metric(stack.gateways[0], "headrace_generation_tokens_total") == 0
            assert await ask(client, 4) == 4
            await asyncio.to_thread(eventually, lambda: stack.pending_entries() == 0)


async def test_a_flood_of_one_tenant_leaves_another_its_share():
    """Two parallel short ones after the other beside forty long ones of another tenant: they never wait for the flood (B38)."""
    flags = [*SIMULATED, "--step-ms", "5", "--max-seqs", "4"]
    with running_stack(worker_flags=flags) as stack:
        async with (
            AsyncClient(stack.targets, metadata=[("x-tenant-id", "flood")]) as flood,
            AsyncClient(stack.targets, metadata=[("x-tenant-id", "quiet")]) as quiet,
        ):
            long = [asyncio.create_task(ask(flood, 300)) for _ in range(40)]
            await asyncio.to_thread(eventually, lambda: stack.pending_entries() == len(long))

            async def lane() -> list[int]:
                return [await ask(quiet, 10) for _ in range(3)]

            assert await asyncio.gather(lane(), lane()) == [[10] * 3] * 2
            # Six short ones waited for a slot each; four at a time, the flood had time for a few rounds meanwhile.
            assert sum(task.done() for task in long) < len(long) / 2
            assert await asyncio.gather(*long) == [300] * len(long)


async def test_tenants_of_equal_demand_get_equal_tokens():
    """Four tenants that always have eight requests waiting, one of them eight times as long: Jain's index is 0.9 or more (B38).

    First come, first served would give each as many requests, and the long one 7 tokens of 10: an index of 0.5.
    """
    flags = [*SIMULATED, "--step-ms", "10", "--max-seqs", "4"]  # slower than anybody who asks
    tokens = dict.fromkeys(("long", "b", "c", "d"), 0)
    enough = asyncio.Event()
    with running_stack(worker_flags=flags) as stack:

        async def lane(client: AsyncClient, tenant: str) -> None:
            size = 1024 if tenant == "long" else 128
            while not enough.is_set():
                answer = await client.generate(
                    "x" * size,
                    model="sim",
                    max_tokens=size // 16,
                    ignore_eos=True,
                    bypass_prefix_cache=True,
                )
                if not enough.is_set():
                    tokens[tenant] += (
                        answer.usage.prompt_tokens + 2 * answer.usage.completion_tokens
                    )
                if sum(tokens.values()) > 32_000:
                    enough.set()

        async with contextlib.AsyncExitStack() as exits:
            clients = {
                tenant: await exits.enter_async_context(
                    AsyncClient(stack.targets, metadata=[("x-tenant-id", tenant)])
                )
                for tenant in tokens
            }
            async with asyncio.TaskGroup() as tasks:
                for tenant, client in clients.items():
                    for _ in range(8):
                        tasks.create_task(lane(client, tenant))
    assert jain([*tokens.values()]) >= 0.9, tokens


async def test_a_short_urgent_request_does_not_wait_for_a_full_batch(
    capsys: pytest.CaptureFixture[str],
):
    """HIGH starts beside long NORMAL ones at once, NORMAL waits for one of them to end, and the long ones lose nothing."""
    flags = [*SIMULATED, "--step-ms", "5", "--max-seqs", "4"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            long = [asyncio.create_task(ask(client, NUM_LONG)) for _ in range(4)]
            await asyncio.to_thread(
                eventually,
                lambda: stack.metric(stack.schedulers[0], "headrace_dispatched_total") == 4,
            )
            told = asyncio.create_task(wait_told(client, stack))
            normal = asyncio.create_task(first_token_s(client))
            high_s = [await first_token_s(client, priority="high") for _ in range(3)]
            assert not normal.done()
            assert not any(task.done() for task in long)
            await told
            assert re.search(
                r"waiting for: +waiting: class NORMAL, position \d+, est\. \d+\.\d s\n",
                capsys.readouterr().out,
            )
            assert not any(task.done() for task in long)
            normal_s = await normal
            assert await asyncio.gather(*long) == [NUM_LONG] * 4
            assert stack.metric(stack.schedulers[0], "headrace_preemptions_asked_total") > 0
            assert max(high_s) < normal_s
