"""Who is who: requests with one id of their clients', many at once, and ids that are used again (B25); at full size 1000."""

import asyncio
import time

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import TokenCount, collect
from tests.support.sizes import sized
from tests.support.stack import SIMULATED, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ASKED = {"model": "sim", "max_tokens": 8, "ignore_eos": True, "temperature": 0.0}
NUM_AT_ONCE, NUM_REUSES = sized(120, 1000), sized(1, 20)


async def test_one_client_id_for_many_requests():
    """The id is the client's own: each request has an id and an answer of its own, also right behind a cancel."""
    with running_stack(
        gateways=2,
        worker_flags=[*SIMULATED, "--step-ms", "2", "--max-seqs", "64"],
        # Witnesses beside them.
        gateway_flags=["--queue-max-requests", str(NUM_AT_ONCE + 100)],
    ) as stack:
        async with AsyncClient(stack.targets) as client, AsyncClient(stack.targets[1]) as other:
            prompts = [f"prompt {n % 10}" for n in range(NUM_AT_ONCE)]
            alone = {prompt: await client.generate(prompt, **ASKED) for prompt in set(prompts)}
            async with witnessed(stack, client, count=3, tokens=100):
                began_s = time.monotonic()
                answers = await asyncio.gather(
                    *(
                        (client, other)[n % 2].generate(prompt, client_request_id="same", **ASKED)
                        for n, prompt in enumerate(prompts)
                    )
                )
                print(f"{NUM_AT_ONCE} answers in {time.monotonic() - began_s:.1f} s")
                assert len({answer.request_id for answer in answers}) == NUM_AT_ONCE
                for prompt, answer in zip(prompts, answers, strict=True):
                    assert answer.choices[0].text == alone[prompt].choices[0].text
                for _ in range(NUM_REUSES):
                    await used_again(client)


async def used_again(client: AsyncClient) -> None:
    """A request is cancelled, and the next one has its id at once."""
    count = TokenCount()
    options = {**ASKED, "client_request_id": "again", "max_tokens": 2000}
    first = asyncio.create_task(collect(client, "first", count=count, **options))
    await count.more(1)
    first.cancel()
    second = await collect(client, "second", **options | {"max_tokens": 8})
    expected = await collect(client, "second", **ASKED)
    assert second.answer == expected.answer
