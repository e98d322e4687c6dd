"""``python -m tests.soak --minutes 20``: the long run; memory must stay flat.

Exit status 1 when an output differs, a block leaks, or memory grows.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from structlog.testing import capture_logs

from tests.soak.bodies import draw_bodies
from tests.soak.run import Soak, resident_mib
from tests.soak.runners import KINDS, WINDOW_TOKENS, make_runner
from worker.kv.disk_tier import DiskTier

POOL_TOKENS = 256  # 1.2 times what the largest request needs, choices counted
MOST_GROWTH_MIB = 24.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kind", choices=KINDS, default="simulated")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.kind}", flush=True)
    with tempfile.TemporaryDirectory() as folder, capture_logs() as logs:
        return soak(options.kind, seed, options.minutes * 60, Path(folder), logs)


def soak(kind: str, seed: int, duration_s: float, folder: Path, logs: list) -> int:
    """Run for so long; the exit status."""
    runner, card = make_runner(kind, folder, POOL_TOKENS)
    wide, _ = make_runner(kind, folder, 4096)
    bodies = draw_bodies(random.Random(seed), 60, wide, card)
    tier = DiskTier(
        folder / "tier", "f", max_bytes=4 << 20, block_bytes=len(runner.blocks.read(0))
    )
    run = Soak(seed, bodies, runner, tier, window_tokens=WINDOW_TOKENS[kind])
    began_s, told_s, settled_mib = time.monotonic(), 0.0, 0.0

    def goes_on() -> bool:
        nonlocal told_s, settled_mib
        passed_s = time.monotonic() - began_s
        logs.clear()  # of the faults; they are not what is measured
        if not settled_mib and passed_s > duration_s / 4:
            settled_mib = resident_mib()
        if passed_s - told_s > 30:
            told_s = passed_s
            print(f"{passed_s:.0f} s, {resident_mib():.0f} MiB, {dict(run.counts)}", flush=True)
        return passed_s < duration_s

    run.run(goes_on)
    tier.close(10)
    growth_mib = resident_mib() - settled_mib
    print(
        f"{dict(run.counts)}\nmemory grew by {growth_mib:.1f} MiB over three quarters of the run"
    )
    return 0 if growth_mib < MOST_GROWTH_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
