"""Redis loses what it held, all of it or the last moments: every client gets a definite status, then service goes on (B30).

What docs/operations.md promises for a Redis that comes back empty, and for an asynchronous fail-over.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.client import AsyncClient, HeadraceError
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.redis_server import RedisServer
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_RUNNING, NUM_WAITING, NUM_TOKENS = 6, 4, 400
FLAGS = [*SIMULATED, "--step-ms", "15", "--max-seqs", str(NUM_RUNNING)]
# A missing record is looked for twice, two seconds apart, by who had no news for 2.5 s; the rest is for slow machines.
_DEFINITE_WITHIN_S = 60.0


def options(number: int) -> dict:
    return {
        "model": "sim",
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "temperature": float(number % 2),
        "seed": number,
    }


@dataclass
class Load:
    """Requests in every status: running and waiting, half of them streams; one that has finished, under a key."""

    undisturbed: list[Outcome]
    finished: Outcome
    open: list[asyncio.Task[Outcome]]
    count: TokenCount
    """Of the streams."""


async def ask(client: AsyncClient, number: int, count: TokenCount) -> Outcome:
    """A stream, or an answer at once."""
    prompt = f"request {number}"
    if number % 2:
        return await collect(client, prompt, count=count, **options(number))
    outcome = Outcome()
    try:
        response = await client.generate(prompt, **options(number))
    except HeadraceError as error:
        outcome.error = error
        return outcome
    outcome.token_ids = list(response.choices[0].token_ids)
    outcome.text = response.choices[0].text
    outcome.finish_reason = response.choices[0].finish_reason
    return outcome


@contextlib.asynccontextmanager
async def loaded(stack: Stack, client: AsyncClient) -> AsyncIterator[Load]:
    numbers = range(NUM_RUNNING + NUM_WAITING)
    undisturbed = await asyncio.gather(*(ask(client, n, TokenCount()) for n in numbers))
    finished = await collect(client, "finished", idempotency_key="k", **options(77))
    count = TokenCount()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(ask(client, number, count)) for number in numbers[:NUM_RUNNING]
        ]
        await count.more(NUM_RUNNING * 5)
        waiting = [
            tasks.create_task(ask(client, number, count)) for number in numbers[NUM_RUNNING:]
        ]
        await asyncio.to_thread(eventually, lambda: stack.pending_entries() == len(numbers))
        yield Load(undisturbed, finished, running + waiting, count)


async def ends(load: Load) -> list[Outcome]:
    """How each open request ended; none may hang."""
    async with asyncio.timeout(scaled(_DEFINITE_WITHIN_S)):
        return await asyncio.gather(*load.open)


def assert_lost(outcome: Outcome, expected: Outcome) -> None:
    """It ended with the status that is promised, and nothing that it said before was wrong."""
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.reason) == ("UNAVAILABLE", "REQUEST_LOST")
    assert outcome.error.retry_after_s is not None
    assert outcome.token_ids == expected.token_ids[: len(outcome.token_ids)]


async def served_again(client: AsyncClient, **more: object) -> Outcome:
    """The first request that is taken, soon; refusals must be definite, too."""
    async with asyncio.timeout(scaled(60)):
        while True:
            outcome = await collect(client, "afterwards", **options(5) | {"max_tokens": 1} | more)
            if outcome.error is None:
                return outcome
            # A flush takes the models along, until a worker has told of them again.
            assert outcome.error.code in ("UNAVAILABLE", "NOT_FOUND"), outcome.error
            await asyncio.sleep(0.2)


def assert_idle(stack: Stack) -> None:
    worker, scheduler = stack.workers[0], stack.schedulers[0]
    eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
    for name in ("headrace_num_requests_waiting", "headrace_num_requests_running"):
        eventually(lambda n=name: stack.metric(scheduler, n) == 0)
    eventually(lambda: stack.pending_entries() == 0)


async def test_a_flush_ends_everything_definitely():
    """FLUSHALL: waiting and running, streams and answers end with UNAVAILABLE in seconds; what had ended is unknown."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client, loaded(stack, client) as load:
            stack.redis_client().flushall()
            for outcome, expected in zip(await ends(load), load.undisturbed, strict=True):
                assert_lost(outcome, expected)
            with pytest.raises(HeadraceError) as caught:
                await client.get_request(load.finished.request_id)
            assert caught.value.code == "NOT_FOUND"
            await served_again(client)
            again = await collect(client, "finished", idempotency_key="k", **options(77))
            assert again.answer == load.finished.answer
            assert again.request_id != load.finished.request_id
            await asyncio.to_thread(assert_idle, stack)


@contextlib.contextmanager
def replicated(stack: Stack, folder: Path) -> Iterator[RedisServer]:
    """A replica that is in step."""
    replica = RedisServer(folder, options=["--repl-diskless-sync-delay", "0"])
    replica.start()
    try:
        with stack.client_of(replica) as theirs, stack.redis_client() as mine:
            theirs.replicaof("127.0.0.1", stack.redis.port)
            eventually(
                lambda: (
                    theirs.info("replication").get("master_link_status") == "up"
                    and theirs.info("replication")["slave_repl_offset"]
                    == mine.info("replication")["master_repl_offset"]
                )
            )
        yield replica
    finally:
        replica.stop()


async def test_a_fail_over_takes_the_last_moments_along(tmp_path: Path):
    """The replica lacks the last tokens, an end and an admission: what it knows of goes on exactly, the rest is lost.

    What went on says every token once, and what had ended for its client ends again, with the same. The leader writes
    what the log has lost again.
    """
    with running_stack(worker_flags=FLAGS, with_link=True) as stack:
        async with AsyncClient(stack.targets) as client:
            with replicated(stack, tmp_path) as replica:
                async with loaded(stack, client) as load:
                    await asyncio.to_thread(part, stack, replica)
                    unknown = asyncio.create_task(
                        collect(
                            client,
                            "unknown",
                            priority="critical",
                            **options(8) | {"max_tokens": 4000},
                        )
                    )
                    await asyncio.to_thread(
                        eventually,
                        lambda: (
                            stack.pending_entries() > NUM_RUNNING + NUM_WAITING or unknown.done()
                        ),
                    )
                    await load.count.more(NUM_RUNNING * 10)  # which only the old master has
                    await asyncio.to_thread(fail_over, stack, replica)
                    async with asyncio.timeout(scaled(_DEFINITE_WITHIN_S)):
                        lost = await unknown
                    assert lost.error is not None
                    assert lost.error.reason == "REQUEST_LOST"
                    outcomes = await asyncio.gather(*load.open)
                    for outcome, expected in zip(outcomes, load.undisturbed, strict=True):
                        assert outcome.error is None, outcome.error
                        assert outcome.answer == expected.answer
                    assert "reply log lost its end: written again" in stack.schedulers[0].log
                    again = await client.get_request(load.finished.request_id)
                    assert list(again.result.choices[0].token_ids) == load.finished.token_ids
                    await served_again(client)
                    await asyncio.to_thread(assert_idle, stack)


def part(stack: Stack, replica: RedisServer) -> None:
    """From here on the replica hears of nothing."""
    with stack.client_of(replica) as theirs:
        theirs.replicaof("NO", "ONE")


def fail_over(stack: Stack, replica: RedisServer) -> None:
    """The master is gone, and its address leads to the replica."""
    assert stack.link is not None
    stack.redis.kill()
    stack.link.lead_to(replica.port)
    stack.redis.port = replica.port
