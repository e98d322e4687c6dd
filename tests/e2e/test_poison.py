"""A request that kills its worker is set aside after three deaths; twenty innocents beside it lose nothing (B29)."""

import asyncio
import os
import subprocess
import sys

import pytest

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.supervision import supervised

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# No answer of the simulated model holds this character, and no innocent's prompt.
POISON = "~"
FLAGS = [
    *(*SIMULATED, "--step-ms", "5", "--max-seqs", "64", "--kv-blocks", "2048"),
    *("--allow-faults", "--fault"),
]
NUM_INNOCENTS = 20


async def innocents(client: AsyncClient, tokens: int = 60) -> list[Outcome]:
    """Twenty answers, greedy and seeded alternately."""
    return await asyncio.gather(
        *(
            collect(
                client,
                f"Innocent number {number} asks for flour. " * (1 + number % 3),
                model="sim",
                max_tokens=tokens,
                ignore_eos=True,
                temperature=float(number % 2),
                seed=number,
            )
            for number in range(NUM_INNOCENTS)
        )
    )


def headrace(stack: Stack, *words: str) -> str:
    """The command line's answer."""
    command = [sys.executable, "-m", "headrace.cli", *words, "--target", stack.targets[0]]
    environment = os.environ | {"PYTHONPATH": "protos/python"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=180, env=environment
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.mark.parametrize(("action", "workers"), [("exit", 1), ("exit", 2), ("break", 1)])
async def test_poison_is_set_aside_and_innocents_finish(action: str, workers: int):
    """Whether it ends the process or breaks the engine for good: exactly three deaths, the third alone; DEAD with INTERNAL and POISON_REQUEST; the innocents' tokens are undisturbed."""
    with running_stack(
        workers=workers, worker_flags=[*FLAGS, f"token={ord(POISON)}:{action}"]
    ) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await innocents(client)
            async with supervised(*stack.workers) as kept:
                load = asyncio.create_task(innocents(client))
                poison = await collect(
                    client, f"A bad {POISON} seed", model="sim", max_tokens=9, temperature=0.0
                )
                disturbed = await load
                # A session ends before its process does.
                await asyncio.to_thread(
                    eventually, lambda: sum(worker.num_deaths for worker in kept) == 3
                )
            assert_poisoned(poison)
            for got, expected in zip(disturbed, undisturbed, strict=True):
                assert got.error is None, (got.request_id, got.error)
                assert got.answer == expected.answer, got.request_id
                assert got.usage.prompt_tokens == expected.usage.prompt_tokens
                assert got.usage.completion_tokens == expected.usage.completion_tokens
            shown = await client.get_request(poison.request_id)
            assert shown.status == gen.REQUEST_STATUS_DEAD
            assert shown.attempts == 3
            await look_at_the_letter(stack, client, poison)
        eventually(lambda: stack.pending_entries() == 0)
        scheduler = stack.schedulers[0]
        assert stack.metric(scheduler, "headrace_dead_letters_total") == 1
        assert stack.metric(scheduler, "headrace_worker_losses_total") == 3


def assert_poisoned(outcome: Outcome) -> None:
    """The client was told that the request is to blame."""
    assert isinstance(outcome.error, HeadraceError)
    assert outcome.error.reason == "POISON_REQUEST"
    assert outcome.error.code == "INTERNAL"
    assert outcome.token_ids == []


async def look_at_the_letter(stack: Stack, client: AsyncClient, poison: Outcome) -> None:
    """List, show and replay it as an operator does; replayed where nothing is wrong with it, it is answered."""
    (letter,) = [one async for one in client.admin.dead_letters()]
    assert letter.request_id == poison.request_id
    assert [attempt.outcome for attempt in letter.attempts] == ["worker lost"] * 3
    assert poison.request_id in await asyncio.to_thread(headrace, stack, "dead", "list")
    shown = await asyncio.to_thread(headrace, stack, "dead", "show", poison.request_id)
    assert "POISON_REQUEST" in shown
    assert shown.count("worker lost") == 3
    for worker in stack.workers:  # mended: they know nothing of the fault any more
        await asyncio.to_thread(worker.stop)
        worker.flags = [
            flag for flag in worker.flags if "fault" not in flag and "token" not in flag
        ]
        worker.start()
    again = (await asyncio.to_thread(headrace, stack, "dead", "replay", letter.request_id)).strip()
    answer = await asyncio.to_thread(headrace, stack, "attach", again)
    assert answer
    assert (await client.get_request(again)).status == gen.REQUEST_STATUS_FINISHED
