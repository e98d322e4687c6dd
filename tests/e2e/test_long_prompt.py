"""A prompt as long as the context freezes neither the streams beside it nor the short prompts behind it (B36)."""

import asyncio
import statistics
import time
from dataclasses import dataclass, field

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import collect
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

# A whole step of prompt (512 tokens) would take 150 ms, the long prompt's share of it takes 52 ms.
FLAGS = [
    *(*SIMULATED, "--step-ms", "20", "--prefill-tokens-per-s", "4000"),
    *("--kv-blocks", "4096", "--max-batch-tokens", "512"),
]
LONG_TOKENS = 7000
NUM_CHATS = 12


@dataclass
class Seen:
    """What the short chats saw."""

    ttft_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)


async def chat(client: AsyncClient, number: int, seen: Seen) -> list[int]:
    """A short prompt, 20 tokens of answer."""
    sent_s = last_s = time.perf_counter()
    tokens: list[int] = []
    async with client.stream(
        f"chat {number} " * 8, model="sim", max_tokens=20, ignore_eos=True, temperature=0.0
    ) as stream:
        async for event in stream:
            if event.HasField("delta") and event.count:
                now_s = time.perf_counter()
                (seen.gaps_s if tokens else seen.ttft_s).append(
                    now_s - last_s if tokens else now_s - sent_s
                )
                last_s = now_s
                tokens += event.delta.token_ids
    return tokens


async def steady(client: AsyncClient, seen: Seen) -> list[list[int]]:
    """A new chat each 60 ms."""
    chats = []
    for number in range(NUM_CHATS):
        chats.append(asyncio.create_task(chat(client, number, seen)))
        await asyncio.sleep(0.06)
    return list(await asyncio.gather(*chats))


async def test_short_chats_hardly_notice_a_long_prompt():
    """Their waits stay within a small multiple of what they are without it, and the long one ends too."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            await steady(client, Seen())
            calm, busy = Seen(), Seen()
            undisturbed = await steady(client, calm)
            long_one = asyncio.create_task(
                collect(client, [7] * LONG_TOKENS, model="sim", max_tokens=4, ignore_eos=True)
            )
            assert await steady(client, busy) == undisturbed
            outcome = await long_one
            assert outcome.error is None
            assert len(outcome.token_ids) == 4
    assert statistics.median(busy.ttft_s) <= 3 * statistics.median(calm.ttft_s)
    assert max(busy.ttft_s) < LONG_TOKENS / 4000, "a short prompt waited for the whole long one"
    assert (
        statistics.quantiles(busy.gaps_s, n=20)[18]
        <= 3 * statistics.quantiles(calm.gaps_s, n=20)[18]
    )
