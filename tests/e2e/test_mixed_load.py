"""200 concurrent mixed requests on the simulated engine, a third cancelled at random moments."""

import asyncio
import random

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as pb
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NUM_REQUESTS = 200
FLAGS = [*SIMULATED, "--step-ms", "2", "--kv-blocks", "256", "--max-seqs", "32"]


async def run_one(client: AsyncClient, number: int, rng: random.Random) -> tuple[Outcome, bool]:
    """One request; every third is cancelled: by RPC after a random event, or by leaving."""
    cancels_at = rng.randint(1, 20) if number % 3 == 0 else None
    events = 0
    cancelling: list[asyncio.Task[object]] = []

    def on_event(event: object) -> None:
        nonlocal events
        events += 1
        if events == cancels_at:
            cancelling.append(asyncio.create_task(client.cancel(request_id[0])))
        if events == 1:
            request_id.append(event.accepted.request_id)  # type: ignore[attr-defined]

    request_id: list[str] = []
    if cancels_at == 1:
        cancels_at = 2
    outcome = await collect(
        client,
        "word " * rng.randint(1, 120),
        model="sim",
        on_event=on_event,
        max_tokens=rng.randint(1, 60),
        temperature=rng.choice([0.0, 0.7]),
        seed=number,
        priority=rng.choice(["batch", "normal", "high", "critical"]),
    )
    await asyncio.gather(*cancelling)
    return outcome, bool(cancelling)


async def test_mixed_load_ends_as_it_should():
    """Every stream ends with its own tokens or as cancelled with a prefix of them; then KVFREE, PELZERO, ALIVE."""
    rng = random.Random(3)
    with running_stack(workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            control = {"model": "sim", "max_tokens": 24, "temperature": 0.0}
            before = await collect(client, "control", **control)
            assert before.error is None
            idle_keys = stack.keys_without_ttl()
            results = await asyncio.gather(
                *(
                    run_one(client, number, random.Random(rng.random()))
                    for number in range(NUM_REQUESTS)
                )
            )
            for outcome, was_cancelled in results:
                if outcome.finish_reason == pb.FINISH_REASON_CANCELLED:
                    assert was_cancelled
                    assert outcome.error is not None
                    assert outcome.error.code == "CANCELLED"
                else:
                    assert outcome.error is None
                    assert outcome.finish_reason in (
                        pb.FINISH_REASON_STOP,
                        pb.FINISH_REASON_LENGTH,
                    )
                record = await client.get_request(outcome.request_id)
                assert list(record.result.choices[0].token_ids) == outcome.token_ids
                assert record.usage.completion_tokens == len(outcome.token_ids)
            for worker in stack.workers:
                eventually(lambda w=worker: stack.metric(w, "headrace_kv_cache_usage_ratio") == 0)
            eventually(lambda: stack.pending_entries() == 0)
            after = await collect(client, "control", **control)
            assert after.answer == before.answer
            assert stack.keys_without_ttl() == idle_keys


async def test_leaving_cancels():
    """A client that drops its stream gets its request cancelled: blocks are freed and the record says so."""
    with running_stack(worker_flags=[*SIMULATED, "--step-ms", "20"]) as stack:
        async with AsyncClient(stack.targets) as client:
            async with client.stream("long story", model="sim", max_tokens=1500) as stream:
                async for event in stream:
                    if event.HasField("delta"):
                        break
            request_id = stream.request_id
            assert request_id is not None
            worker = stack.workers[0]
            eventually(lambda: stack.metric(worker, "headrace_num_requests_running") == 0)
            eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
            eventually(lambda: stack.pending_entries() == 0)
            record = await client.get_request(request_id)
            assert record.status == pb.REQUEST_STATUS_CANCELLED
            assert record.usage.completion_tokens == len(record.result.choices[0].token_ids) > 0
