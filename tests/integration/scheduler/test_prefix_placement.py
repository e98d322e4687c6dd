"""Requests go where their prompt's beginning is cached: a real scheduler and two workers' real caches and sessions."""

import asyncio
import random

import pytest

from common.streams.node import Node
from tests.integration.scheduler.fake_gateway import FakeGateway, serving
from tests.integration.scheduler.fake_worker import MODEL
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled
from tests.support.worker_in_process import running_worker
from worker.simulated.card import simulated_card
from worker.simulated.settings import SimulatedSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

# A worker's pool holds the beginnings of five groups of the eight, so that it matters who computes what.
SETTINGS = SimulatedSettings(model=MODEL, kv_blocks=64)
NUM_GROUPS, SHARED_TOKENS, ROUNDS = 8, 160, 5


async def cached_tokens(gateway: FakeGateway, block_tokens: int) -> int:
    """Prompt tokens that were not computed, of rounds in which every group asks once, four requests at a time."""
    rng = random.Random(5)
    revision = simulated_card(SETTINGS).revision

    async def ask(group: int, number: int) -> int:
        shared = tuple(100 + (group * 7 + at) % 90 for at in range(SHARED_TOKENS))
        prompt = (*shared, *(40 + (number * 3 + at) % 50 for at in range(8)))
        # A tenant of its own for each way of placing: what one has cached is of no use to the other.
        request_id = await gateway.admit(
            prompt, 4, tenant=f"t{block_tokens}", revision=revision, block_tokens=block_tokens
        )
        progress = await gateway.ended(request_id)
        assert progress.prompt is not None
        return progress.prompt.cached_tokens

    total = 0
    for number in range(ROUNDS):
        groups = [*range(NUM_GROUPS)]
        rng.shuffle(groups)
        for first in range(0, NUM_GROUPS, 4):
            total += sum(
                await asyncio.gather(*(ask(g, number) for g in groups[first : first + 4]))
            )
    return total


async def test_workers_compute_a_beginning_once(redis_server: RedisServer, node: Node):
    """Named beginnings are found again almost always; placed by load alone, the same requests seldom find theirs."""
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        running_worker([scheduler.address], settings=SETTINGS, worker_id="w1"),
        running_worker([scheduler.address], settings=SETTINGS, worker_id="w2"),
    ):
        by_load = await cached_tokens(gateway, 0)
        by_prefix = await cached_tokens(gateway, SETTINGS.block_size)
    most = NUM_GROUPS * SHARED_TOKENS * (ROUNDS - 1)
    assert by_prefix >= 0.8 * most
    assert by_prefix >= 1.3 * by_load
