"""``python -m tests.chaos --minutes 30 --seed N``: the long run, with figures at its end.

Exit status 1 when anything was lost, repeated, altered or left behind; the folder that is named then holds the
schedule, the histories of the requests concerned and the logs of all services.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.run import run_chaos
from tests.chaos.schedule import LASTS_LONG, FaultKind
from tests.chaos.settings import ChaosSettings

_LONG_MINUTES = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print."""
    options = _parser().parse_args(arguments)
    is_long = options.minutes >= _LONG_MINUTES
    settings = ChaosSettings(
        seed=options.seed if options.seed is not None else random.SystemRandom().getrandbits(31),
        duration_s=options.minutes * 60,
        engine=options.engine,
        num_streams=options.streams,
        num_asks=options.asks,
        step_ms=options.step_ms,
        kinds=tuple(
            options.only or [kind for kind in FaultKind if is_long or kind not in LASTS_LONG]
        ),
        gap_s=(options.gap_s * 0.5, options.gap_s * 1.5),
        most_at_once=options.at_once,
        num_partitions=options.partitions,
        longest_without_redis_s=30.0 if is_long else 8.0,
        folder=options.folder,
    )
    print(f"seed {settings.seed}", flush=True)
    verdict = asyncio.run(run_chaos(settings, lambda line: print(line, flush=True)))
    print(verdict.figures)
    if not verdict.failures:
        print(f"seed {settings.seed}: everything as undisturbed")
        return 0
    print("\nschedule:", *verdict.schedule, sep="\n  ")
    print(f"\nseed {settings.seed}: {len(verdict.failures)} failures, see {verdict.folder}")
    for failure in verdict.failures[:20]:
        print(f"  {failure.message}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of faults")
    parser.add_argument("--seed", type=int, help="of faults and requests; default a new one")
    parser.add_argument("--engine", choices=["simulated", "model"], default="simulated")
    parser.add_argument("--streams", type=int, default=16, help="clients at once")
    parser.add_argument("--asks", type=int, default=40, help="distinct requests")
    parser.add_argument("--step-ms", type=float, default=15.0, help="of the simulated engine")
    parser.add_argument("--only", type=_kinds, help="kinds of faults, with commas between")
    parser.add_argument("--gap-s", type=float, default=3.0, help="mean pause between faults")
    parser.add_argument("--at-once", type=int, default=2, help="most faults at the same time")
    parser.add_argument("--partitions", type=int, default=1, help="of each model")
    parser.add_argument("--folder", type=Path, default=Path(".cache/chaos"))
    return parser


def _kinds(text: str) -> list[FaultKind]:
    return [FaultKind(part.strip()) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
