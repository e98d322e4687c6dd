"""A prompt as long as the context freezes neither the streams beside it nor the short prompts behind it (B36).

How long they wait is what ``python -m tests.bench.long_prompt`` measures; here it is counted in steps.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import collect
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# A whole step of prompt (512 tokens) would take 256 ms; of the long prompt a step beside others takes what takes as long as
# the step does anyway, 40 tokens, so that it is read in 175 steps, 7 s.
FLAGS = [
    *(*SIMULATED, "--step-ms", "20", "--prefill-tokens-per-s", "2000"),
    *("--kv-blocks", "4096", "--max-batch-tokens", "512"),
]
LONG_TOKENS = 7000
NUM_CHATS = 8
CHAT_TOKENS = 8
MIN_STEPS = LONG_TOKENS // 60
"""The steps beside it that are seen at least: no step takes more than 40 tokens of it, and some come late."""


async def answered(client: AsyncClient, prompt: str, num_tokens: int) -> AsyncIterator[int]:
    """The tokens of a greedy answer, as they come."""
    async with client.stream(
        prompt, model="sim", max_tokens=num_tokens, ignore_eos=True, temperature=0.0
    ) as stream:
        async for event in stream:
            if event.HasField("delta"):
                for token in event.delta.token_ids:
                    yield token


async def chat(client: AsyncClient, number: int) -> list[int]:
    """A short prompt with a short answer."""
    return [token async for token in answered(client, f"chat {number} " * 8, CHAT_TOKENS)]


async def chats(client: AsyncClient) -> list[list[int]]:
    """Some at once."""
    return list(await asyncio.gather(*(chat(client, number) for number in range(NUM_CHATS))))


async def test_short_chats_end_while_a_long_prompt_is_read():
    """They are answered before it is, a stream beside it goes on at each step, and it ends too."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            undisturbed = await chats(client)
            witness = answered(client, "a stream that runs already", 1000)
            await anext(witness)
            long_one = asyncio.create_task(
                collect(client, [7] * LONG_TOKENS, model="sim", max_tokens=1, ignore_eos=True)
            )
            beside = asyncio.create_task(chats(client))
            num_beside = 0
            async for _ in witness:
                num_beside += 1
                if not beside.done():
                    assert not long_one.done(), "the chats waited for the whole long prompt"
                if long_one.done():
                    break
            await witness.aclose()
            assert await beside == undisturbed
            outcome = await long_one
            assert outcome.error is None
            assert len(outcome.token_ids) == 1
            assert num_beside >= MIN_STEPS, "the stream beside the long prompt stood still"
