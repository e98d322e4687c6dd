"""Cancels at every moment, in every number: idempotent, a state for answer, nobody else disturbed (B20)."""

import asyncio
import random

import pytest

from headrace.client import AsyncClient, HeadraceError, build_request
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# A pool in which a handful of requests fit at once, so that sequences are given back and come again.
FLAGS = [*SIMULATED, "--step-ms", "5", "--kv-blocks", "96", "--max-seqs", "8"]
NUM_REQUESTS = 80
ASKED = {"model": "sim", "ignore_eos": True, "temperature": 1.0}


async def test_cancels_at_random():
    """While waiting, running, returned or just ended, once or twice: CANCELLED with a prefix, or the whole answer."""
    rng = random.Random(20)
    with running_stack(worker_flags=FLAGS) as stack:
        async with (
            AsyncClient(stack.targets) as client,
            witnessed(stack, client, count=3, tokens=200),
        ):
            outcomes = await asyncio.gather(
                *(cancelled_somewhere(client, n, rng.randint(0, 70)) for n in range(NUM_REQUESTS))
            )
            whole = [outcome for outcome in outcomes if outcome.error is None]
            assert 0 < len(whole) < NUM_REQUESTS
            for outcome in outcomes:
                shown = await client.get_request(outcome.request_id)
                assert list(shown.result.choices[0].token_ids) == outcome.token_ids
                assert shown.usage.completion_tokens == len(outcome.token_ids)
            await known_answers(client, whole[0].request_id)
            await before_it_is_read(stack, client)
            await all_of_a_batch(stack, client)
        for process in (*stack.gateways, *stack.schedulers, *stack.workers):
            assert '"level": "error"' not in process.log


async def cancelled_somewhere(client: AsyncClient, number: int, place: int) -> Outcome:
    """A stream of 60 tokens that is cancelled at `place`, which it may not reach; by two calls if that is even."""
    cancels: list[asyncio.Task[pb.CancelResponse]] = []
    request_id, seen = "", 0

    def on_event(event) -> None:
        nonlocal request_id, seen
        request_id, seen = request_id or event.accepted.request_id, seen + event.count
        if seen >= place and not cancels:
            num = 2 - place % 2
            cancels.extend(asyncio.create_task(client.cancel(request_id)) for _ in range(num))

    outcome = await collect(
        client, f"{number} " * (1 + number % 90), on_event=on_event, max_tokens=60, seed=number, **ASKED
    )  # fmt: skip
    for answer in await asyncio.gather(*cancels):
        assert answer.cancelling or answer.status >= gen.REQUEST_STATUS_FINISHED
    if outcome.error is not None:
        assert outcome.error.code == "CANCELLED", outcome.error
        assert cancels
    return outcome


async def known_answers(client: AsyncClient, finished: str) -> None:
    """What has ended says how; what never was is NOT_FOUND."""
    answer = await client.cancel(finished)
    assert (answer.status, answer.cancelling) == (gen.REQUEST_STATUS_FINISHED, False)
    with pytest.raises(HeadraceError) as caught:
        await client.cancel(finished[:-4] + "0000")
    assert caught.value.code == "NOT_FOUND"


async def before_it_is_read(stack: Stack, client: AsyncClient) -> None:
    """Admitted while no scheduler looks, cancelled before one does: it never reaches a worker."""
    scheduler = stack.schedulers[0]
    dispatched = stack.metric(scheduler, "headrace_dispatched_total")
    scheduler.pause()
    try:
        ids: asyncio.Queue[str] = asyncio.Queue()
        unread = asyncio.create_task(
            collect(
                client,
                "unread",
                on_event=lambda event: ids.put_nowait(event.accepted.request_id),
                max_tokens=5,
                **ASKED,
            )
        )
        request_id = await ids.get()
        for _ in range(2):
            assert (await client.cancel(request_id)).cancelling
        scheduler.resume()
        outcome = await unread
        assert outcome.error is not None
        assert (outcome.error.code, outcome.token_ids) == ("CANCELLED", [])
    finally:
        scheduler.resume()
    assert stack.metric(scheduler, "headrace_dispatched_total") == dispatched


async def all_of_a_batch(stack: Stack, client: AsyncClient) -> None:
    """A batch call that is closed takes all its requests along."""
    num_open = stack.pending_entries()
    count = TokenCount()
    requests = [build_request(f"batch {n}", max_tokens=1000, **ASKED) for n in range(6)]
    requests.append(build_request("the first to end", max_tokens=1, **ASKED))
    batch = client.batch(requests)
    async for outcome in batch:
        assert outcome.index == len(requests) - 1
        count.add(1)
        break
    await batch.aclose()
    await asyncio.to_thread(eventually, lambda: stack.pending_entries() <= num_open)
