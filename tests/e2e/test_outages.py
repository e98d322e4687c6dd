"""Unknown model, expired deadline, no worker, Redis away: the stated status, advice, and service by itself."""

import asyncio

import pytest

from headrace.client import AsyncClient, Client, HeadraceError, Unavailable
from headrace.internal.v1 import records_pb2
from headrace.v1 import generation_pb2 as pb
from tests.support.outcomes import collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SLOW = [*SIMULATED, "--step-ms", "20", "--max-seqs", "1"]


async def test_an_unknown_model_is_not_found():
    """NOT_FOUND names the model; no retry advice, because none helps."""
    with running_stack() as stack:
        async with AsyncClient(stack.targets) as client:
            with pytest.raises(HeadraceError) as caught:
                await client.generate("hello", model="no-such-model")
            assert caught.value.code == "NOT_FOUND"
            assert caught.value.reason == "MODEL_NOT_FOUND"
            assert caught.value.retry_after_s is None


async def test_deadlines_hold_in_the_queue_and_while_decoding():
    """Expired in the queue: no tokens, never dispatched. Expired while decoding: the partial output and exact usage (B21)."""
    with running_stack(worker_flags=SLOW) as stack:
        async with AsyncClient(stack.targets) as client:
            running = asyncio.create_task(
                collect(
                    client, "occupies the only slot", model="sim", max_tokens=1000, timeout_s=8
                )
            )
            worker = stack.workers[0]
            await asyncio.to_thread(
                eventually, lambda: stack.metric(worker, "headrace_num_requests_running") == 1
            )
            queued = await collect(client, "waits", model="sim", max_tokens=5, timeout_s=0.5)
            assert queued.error is not None
            assert queued.error.code == "DEADLINE_EXCEEDED"
            assert queued.token_ids == []
            decoded = await running
            assert decoded.error is not None
            assert decoded.error.code == "DEADLINE_EXCEEDED"
            for outcome, has_tokens in ((queued, False), (decoded, True)):
                record = await client.get_request(outcome.request_id)
                assert record.status == pb.REQUEST_STATUS_EXPIRED
                assert bool(record.usage.completion_tokens) is has_tokens
            scheduler = stack.schedulers[0]
            assert stack.metric(scheduler, "headrace_dispatched_total") == 1
            eventually(lambda: stack.pending_entries() == 0)


async def test_a_request_waits_for_a_worker_or_is_refused():
    """A known model without a worker holds its requests; `hold=False` is refused with advice."""
    with running_stack(worker_flags=SLOW) as stack:
        async with AsyncClient(stack.targets) as client:
            stack.workers[0].kill()
            scheduler = stack.schedulers[0]
            await asyncio.to_thread(eventually, lambda: not _num_workers(stack))
            with pytest.raises(HeadraceError) as caught:
                await client.generate("now or never", model="sim", max_tokens=3, hold=False)
            assert caught.value.code == "UNAVAILABLE"
            assert caught.value.retry_after_s is not None
            held = asyncio.create_task(collect(client, "waits", model="sim", max_tokens=3))
            await asyncio.to_thread(
                eventually, lambda: stack.metric(scheduler, "headrace_num_requests_waiting") == 1
            )
            stack.workers[0].start()
            outcome = await held
            assert outcome.error is None
            assert len(outcome.token_ids) == 3


async def test_redis_away_and_back():
    """While Redis is down: UNAVAILABLE with advice, soon. Once it is back, service resumes by itself (B30)."""
    with running_stack(worker_flags=SLOW) as stack:
        async with AsyncClient(stack.targets) as client:
            stack.redis.kill()
            with pytest.raises(HeadraceError) as caught:
                await client.generate("hello", model="sim", max_tokens=3, timeout_s=30)
            assert caught.value.code == "UNAVAILABLE"
            assert caught.value.retry_after_s is not None
            await asyncio.to_thread(stack.redis.restart)

            await asyncio.to_thread(eventually, lambda: _is_served(stack.targets))


def _is_served(targets: list[str]) -> bool:
    with Client(targets) as client:
        try:
            answer = client.generate("hello", model="sim", max_tokens=3, timeout_s=5)
        except Unavailable:
            return False
    return len(answer.choices[0].token_ids) == 3


def _num_workers(stack: Stack) -> int:
    """Workers in the leaders' snapshots."""
    client = stack.redis_client()
    values = [client.get(key) for key in client.keys("hr:*:status")]
    return sum(
        len(records_pb2.PartitionStatus.FromString(value).workers) for value in values if value
    )
