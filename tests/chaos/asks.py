"""The distinct requests of a run, and what each answers when nothing is disturbed.

Stop strings and stop ids are taken from the middle of what another request answers, so that they are met.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client import AsyncClient
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos import features
from tests.chaos.settings import ChaosSettings
from tests.support.outcomes import Outcome, collect

_NUM_AT_ONCE = 8


@dataclass(frozen=True)
class Known:
    """One request without what differs from call to call, and its undisturbed answer."""

    number: int
    request: pb.GenerateRequest
    answer: Outcome
    prompt_ids: Sequence[int]

    @property
    def model(self) -> str:
        """Whom it asks, by its own name."""
        return self.request.model


async def prepare(settings: ChaosSettings, client: AsyncClient) -> list[Known]:
    """Draw the asks and let a quiet stack answer them, the second half after the first has shown where to stop."""
    rng = random.Random(f"asks {settings.seed}")
    num_first = settings.num_asks // 2
    first = await _answer(client, 0, [features.ask(rng, settings) for _ in range(num_first)])
    bases = [rng.choice(first) for _ in range(settings.num_asks - num_first)]
    stopped = [features.stopped(rng, base.request, base.answer) for base in bases]
    return first + await _answer(client, num_first, stopped)


async def _answer(
    client: AsyncClient, number: int, requests: Sequence[pb.GenerateRequest]
) -> list[Known]:
    slots = asyncio.Semaphore(_NUM_AT_ONCE)

    async def one(number: int, request: pb.GenerateRequest) -> Known:
        async with slots:
            outcome = await collect(client, request, timeout_s=240)
            counted = await client.count_tokens(
                request.prompt, model=request.model, return_token_ids=True
            )
        if outcome.error is not None:
            raise outcome.error
        return Known(number, request, outcome, [*counted.token_ids])

    return await asyncio.gather(*(one(*numbered) for numbered in enumerate(requests, number)))
