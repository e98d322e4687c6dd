"""A short soak on each runner: every output equals the undisturbed one, and no block is left."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.soak.__main__ import POOL_TOKENS
from tests.soak.bodies import draw_bodies
from tests.soak.run import Soak
from tests.soak.runners import WINDOW_TOKENS, make_runner
from tests.support.time_scale import scaled
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.kv.disk_tier import DiskTier

pytestmark = pytest.mark.timeout(scaled(600))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The faults on purpose would fill the report."""
    with capture_logs():
        yield


@pytest.mark.parametrize(
    ("kind", "seed", "num_steps"),
    [("simulated", seed, 2000) for seed in (0, 2, 5)]
    + [("generic", 1, 120), ("lean", 2, 300), ("windowed", 2, 300)],
)
def test_everything_at_once_alters_nothing(
    kind: str, seed: int, num_steps: int, tmp_path: Path
) -> None:
    """On memory for little more than one request: cancels, deadlines, returns, faults, new sessions, both ways to make room."""
    if kind in {"lean", "windowed"}:
        try:
            instruction_sets()
        except KernelsMissing as missing:
            pytest.skip(str(missing))
    runner, card = make_runner(kind, tmp_path, POOL_TOKENS)
    wide, _ = make_runner(kind, tmp_path / "wide", 4096)
    bodies = draw_bodies(random.Random(seed), 24, wide, card)
    tier = DiskTier(
        tmp_path / "tier", "f", max_bytes=4 << 20, block_bytes=len(runner.blocks.read(0))
    )
    soak = Soak(seed, bodies, runner, tier, window_tokens=WINDOW_TOKENS[kind])
    soak.run(lambda: soak.counts["steps"] < num_steps)
    tier.close(10)
    seen = {name for name, count in soak.counts.items() if count}
    assert {"hits", "length", "cancelled"} <= seen
    if kind == "simulated":
        assert {"preempted", "swapped", "recomputed", "evicted", "loaded"} <= seen
        assert {"returned", "error", "deadline", "sessions"} <= seen
        assert {"grammars", "scored", "guessed"} <= seen
