"""A short chaos run: every output equals the undisturbed one, and nothing is left behind.

`HEADRACE_CHAOS_SEED` replays a run; `python -m tests.chaos` and `make chaos` are the long ones.
"""

import os

import pytest

from tests.chaos.run import run_chaos
from tests.chaos.settings import ChaosSettings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DEFAULT_SEED = 3


async def test_faults_of_every_kind_leave_every_output_as_it_is():
    """Killed, paused, cut off, drained, rolled: zero differences, zero losses; then KVFREE, PELZERO, ALIVE."""
    settings = ChaosSettings(
        seed=int(os.environ.get("HEADRACE_CHAOS_SEED", DEFAULT_SEED)),
        duration_s=120,
        num_streams=12,
        num_asks=24,
        gap_s=(0.5, 2.0),
        longest_answer_tokens=300,
        longest_without_redis_s=4,
    )
    verdict = await run_chaos(settings)
    print(verdict.figures)
    told = [f"seed {settings.seed}, logs and histories in {verdict.folder}"]
    told += [failure.message for failure in verdict.failures]
    told += ["the schedule:", *verdict.schedule]
    assert not verdict.failures, "\n".join(told)
