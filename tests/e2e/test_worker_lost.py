"""A worker dies or sleeps under its load: every token as undisturbed, once, counted once (B27, B28)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import generation_pb2 as pb
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.processes import ServiceProcess
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FLAGS = [*SIMULATED, "--step-ms", "15", "--max-seqs", "12", "--max-batch-tokens", "64"]
NUM_REQUESTS, NUM_TOKENS = 32, 90


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    flags = ["--reconnect-grace-s", "0.5"]
    with running_stack(workers=2, worker_flags=FLAGS, scheduler_flags=flags) as started:
        yield started


def asked(number: int) -> tuple[str, dict[str, Any]]:
    """Short and long prompts, greedy and seeded."""
    prompt = f"request {number} " * (40 if number % 4 == 3 else 1)
    return prompt, {
        "model": "sim",
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "temperature": float(number % 2),
        "seed": number,
    }


async def ask(client: AsyncClient, number: int, count: TokenCount) -> Outcome:
    """A stream, or an answer at once."""
    prompt, options = asked(number)
    if number % 3:
        return await collect(client, prompt, count=count, **options)
    outcome = Outcome()
    try:
        response = await client.generate(prompt, **options)
    except HeadraceError as error:
        outcome.error = error
        return outcome
    choice = response.choices[0]
    outcome.request_id, outcome.token_ids = response.request_id, list(choice.token_ids)
    outcome.text, outcome.finish_reason = choice.text, choice.finish_reason
    outcome.usage.CopyFrom(response.usage)
    return outcome


async def ask_all(client: AsyncClient, count: TokenCount) -> list[Outcome]:
    return await asyncio.gather(*(ask(client, n, count) for n in range(NUM_REQUESTS)))


@pytest.mark.parametrize("way", ["killed", "zombie"])
async def test_a_worker_under_load_is_lost(stack: Stack, way: str):
    """B27: one of two workers, 32 requests at mixed stages. Killed, or asleep until it is replaced and then awake."""
    lost = stack.workers[0]
    async with AsyncClient(stack.targets) as client:
        undisturbed = await ask_all(client, TokenCount())
        async with witnessed(stack, client, count=3, tokens=250):
            count = TokenCount()
            load = asyncio.create_task(ask_all(client, count))
            await count.more(150)
            await lose(stack, lost, way)
            for got, expected in zip(await load, undisturbed, strict=True):
                assert got.error is None, (got.request_id, got.error)
                assert got.answer == expected.answer, got.request_id
                assert got.counted == expected.counted
                shown = await client.get_request(got.request_id)
                assert shown.usage == got.usage


async def lose(stack: Stack, worker: ServiceProcess, way: str) -> None:
    """Behind it the worker is there again: a new one, or the former, with what it still wants to say."""
    losses = stack.metric(stack.schedulers[0], "headrace_worker_losses_total")
    if way == "killed":
        worker.kill()
        worker.start()
        await asyncio.to_thread(worker.wait_until_ready)
    else:
        worker.pause()
    await asyncio.to_thread(
        eventually,
        lambda: stack.metric(stack.schedulers[0], "headrace_worker_losses_total") > losses,
    )
    if way == "zombie":
        worker.resume()


async def test_a_stop_string_half_emitted_at_the_kill(stack: Stack):
    """B28: what was held back for a stop string is matched, or given out, by the next worker as by the first."""
    async with AsyncClient(stack.targets) as client, witnessed(stack, client, count=2, tokens=250):
        prompt, options = asked(1)
        whole = await collect(client, prompt, **options)
        place = len(whole.text) // 2
        # Many tokens long: a client that lags gets some of them together, and still sees that more are held back.
        real = whole.text[place : place + 40]
        for stop in (real, real[:-1] + "\x00"):
            wished = options | {"stop": [stop]}
            expected = await collect(client, prompt, **wished)
            assert (expected.finish_reason == pb.FINISH_REASON_STOP) == (stop == real)
            got = await killed_in(stack, client, prompt, wished, place)
            assert got.error is None, got.error
            assert got.answer == expected.answer
            assert got.matched_stop == expected.matched_stop
            assert got.counted == expected.counted
            assert got.timings.attempts == 2


async def test_two_choices_with_everything_at_the_kill(stack: Stack):
    """B28: the worker dies when one of two choices is over; stop string, penalties, seed and scores of both are exact."""
    prompt, options = asked(1)
    options |= {"n": 2, "frequency_penalty": 0.5, "repetition_penalty": 1.2}
    options["output"] = pb.OutputOptions(logprobs=True, top_logprobs=2)
    async with AsyncClient(stack.targets) as client, witnessed(stack, client, count=2, tokens=250):
        whole = (await collect(client, prompt, **options)).choices[0].text
        options["stop"] = [whole[len(whole) // 3 :][:8]]
        expected = await collect(client, prompt, **options)
        assert expected.choices[0].finish_reason == pb.FINISH_REASON_STOP
        killed: list[ServiceProcess] = []
        request_id = ""

        def on_event(event: Any) -> None:
            nonlocal request_id
            request_id = request_id or event.accepted.request_id
            if event.WhichOneof("event") == "finish" and not killed:
                assert not event.finish.last
                killed.append(stack.runner_of(request_id))
                killed[0].kill()

        got = await collect(client, prompt, on_event=on_event, **options)
        killed[0].start()
        await asyncio.to_thread(killed[0].wait_until_ready)
        assert got.error is None, got.error
        assert got.choices == expected.choices
        assert got.counted == expected.counted
        assert got.timings.attempts == 2


async def killed_in(
    stack: Stack, client: AsyncClient, prompt: str, options: dict[str, Any], place: int
) -> Outcome:
    """A stream whose worker is killed while it holds back the text of two tokens or more behind `place`."""
    killed: list[ServiceProcess] = []
    request_id, num_chars, num_held = "", 0, 0

    def on_event(event: Any) -> None:
        nonlocal request_id, num_chars, num_held
        request_id = request_id or event.accepted.request_id
        num_held = 0 if event.delta.text else num_held + event.count
        num_chars += len(event.delta.text)
        if num_chars >= place and num_held >= 2 and not killed:
            killed.append(stack.runner_of(request_id))
            killed[0].kill()

    outcome = await collect(client, prompt, on_event=on_event, **options)
    assert killed, "nothing was held back"
    killed[0].start()
    await asyncio.to_thread(killed[0].wait_until_ready)
    return outcome
