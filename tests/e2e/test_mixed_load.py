"""200 concurrent mixed requests on the simulated engine, a third cancelled at random moments."""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.support.outcomes import Outcome, collect, follow
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_REQUESTS = 200
FLAGS = [*SIMULATED, "--step-ms", "2", "--kv-blocks", "256", "--max-seqs", "32"]


class LeftError(Exception):
    """The client has seen enough."""


@dataclass
class Sent:
    """One request, and how it was to end before its time, if at all."""

    outcome: Outcome
    way: str | None


async def run_one(client: AsyncClient, number: int, rng: random.Random) -> Sent:
    """Every third is cancelled: as soon as it is accepted, by RPC at a random event, or by leaving at one."""
    way = rng.choice(["accepted", "rpc", "leave"]) if number % 3 == 0 else None
    at = 1 if way == "accepted" else rng.randint(2, 20)
    events = 0
    outcome = Outcome()
    cancelling: list[asyncio.Task[object]] = []

    def on_event(_: object) -> None:
        nonlocal events
        events += 1
        if way is None or events != at:
            return
        if way == "leave":
            raise LeftError
        cancelling.append(asyncio.create_task(client.cancel(outcome.request_id)))

    options = {
        "model": "sim",
        # Long enough that a cancellation comes before the end.
        "max_tokens": rng.randint(1, 60) if way is None else rng.randint(200, 300),
        "temperature": rng.choice([0.0, 0.7]),
        "seed": number,
        "priority": rng.choice(["batch", "normal", "high", "critical"]),
    }
    with contextlib.suppress(LeftError):
        async with client.stream("word " * rng.randint(1, 120), **options) as stream:
            await follow(stream, outcome, on_event=on_event)
    await asyncio.gather(*cancelling)
    return Sent(outcome, way)


def check_end(sent: Sent, record: pb.GetRequestResponse) -> None:
    """What the client saw is what is on record, to the end or up to where it left."""
    outcome, token_ids = sent.outcome, [*record.result.choices[0].token_ids]
    assert record.usage.completion_tokens == len(token_ids)
    if sent.way == "leave" and outcome.error is None and not outcome.finish_reason:
        assert token_ids[: len(outcome.token_ids)] == outcome.token_ids
        return
    assert token_ids == outcome.token_ids
    if outcome.finish_reason == gen.FINISH_REASON_CANCELLED:
        assert sent.way
        assert outcome.error is not None
        assert outcome.error.code == "CANCELLED"
    else:
        assert outcome.error is None
        assert outcome.finish_reason in (gen.FINISH_REASON_STOP, gen.FINISH_REASON_LENGTH)


async def test_mixed_load_ends_as_it_should():
    """Every stream ends with its own tokens or as cancelled with a prefix of them; then KVFREE, PELZERO, ALIVE."""
    rng = random.Random(3)
    with running_stack(workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            control = {"model": "sim", "max_tokens": 24, "temperature": 0.0}
            before = await collect(client, "control", **control)
            assert before.error is None
            idle_keys = stack.keys_without_ttl()
            everything = await asyncio.gather(
                *(
                    run_one(client, number, random.Random(rng.random()))
                    for number in range(NUM_REQUESTS)
                )
            )
            for worker in stack.workers:
                eventually(lambda w=worker: stack.metric(w, "headrace_kv_cache_usage_ratio") == 0)
            eventually(lambda: stack.pending_entries() == 0)
            landed: Counter[str] = Counter()
            for sent in everything:
                record = await client.get_request(sent.outcome.request_id)
                check_end(sent, record)
                if sent.way and record.status == gen.REQUEST_STATUS_CANCELLED:
                    landed[sent.way] += 1
                    landed["queued"] += not record.usage.prompt_tokens
            asked = sum(sent.way is not None for sent in everything)
            assert landed["accepted"] + landed["rpc"] + landed["leave"] >= asked * 0.5, landed
            assert all(landed[way] for way in ("accepted", "rpc", "leave", "queued")), landed
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
            assert record.status == gen.REQUEST_STATUS_CANCELLED
            assert record.usage.completion_tokens == len(record.result.choices[0].token_ids) > 0
