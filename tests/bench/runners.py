"""Steps of the default model by runner and format, all in one run: machines differ, and so do their moods.

python -m tests.bench.runners [VARIANT...] [--repeats N] [--threads N]
"""

import argparse
import random
import statistics
import time
from typing import Any

import torch

from common.domain import Quantization, SamplingParams
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Draw, Row
from worker.model.lean.runner import LeanRunner
from worker.model.load import load_model

CONTEXT_TOKENS = 270
PREFILL_TOKENS = 512
BLOCK_SIZE = 16
BATCHES = (1, 8, 32)
BLOCKS_PER_ROW = -(-(CONTEXT_TOKENS + 1) // BLOCK_SIZE)


def shapes() -> dict[str, list[Row]]:
    """Decode steps of several widths behind a context, and a prompt."""
    numbers = random.Random(0)
    draw = Draw(SamplingParams(seed=0, temperature=0.0), 0, 0)

    def decode(index: int) -> Row:
        blocks = range(index * BLOCKS_PER_ROW, (index + 1) * BLOCKS_PER_ROW)
        return Row([numbers.randrange(40_000)], CONTEXT_TOKENS, blocks, draw)

    steps = {f"decode, {n} rows": [decode(i) for i in range(n)] for n in BATCHES}
    prompt = [numbers.randrange(40_000) for _ in range(PREFILL_TOKENS)]
    steps[f"prefill, {PREFILL_TOKENS} tokens"] = [
        Row(prompt, 0, range(PREFILL_TOKENS // BLOCK_SIZE), draw)
    ]
    return steps


def step_ms(runner: Any, rows: list[Row]) -> float:
    """One step's time."""
    began = time.perf_counter()
    runner.run(rows)
    return (time.perf_counter() - began) * 1e3


VARIANTS = ("generic-int8", "lean-int8", "lean-q4", "lean-nf4")


def main() -> None:
    """Print medians, how they compare with the first variant's, and where the lean decoder's time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="RUNNER-FORMAT")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    threads = options.threads or torch.get_num_threads()
    runners: dict[str, Any] = {}
    for variant in options.variants:
        kind, _, how = variant.partition("-")
        settings = ModelSettings(
            kv_blocks=max(BATCHES) * BLOCKS_PER_ROW,
            runner=RunnerKind(kind),
            quantization=Quantization(how),
            threads=threads,
            context_tokens=1024,
        )
        began = time.perf_counter()
        runners[variant] = load_model(settings, lambda _: None).runner
        print(f"{variant}: loaded in {time.perf_counter() - began:.1f} s", flush=True)
    for name, rows in shapes().items():
        print(name)
        first_ms = None
        for variant, runner in runners.items():
            ms, parts = measure(runner, rows, options.repeats, threads)
            first_ms = first_ms or ms
            print(f"  {variant:14} {ms:7.1f} ms  x{first_ms / ms:.1f}")
            if parts:
                print("   ", "  ".join(f"{k} {v:.2f}" for k, v in parts.items()), flush=True)


def measure(
    runner: Any, rows: list[Row], repeats: int, threads: int
) -> tuple[float, dict[str, float]]:
    """The median time of a step, and of its parts where they are known, in milliseconds."""
    decoder = runner.decoder if isinstance(runner, LeanRunner) else None
    torch.set_num_threads(1 if decoder else threads)
    # torch's threads stay awake for a while, and would take cores from the kernels.
    time.sleep(0.5)
    step_ms(runner, rows)
    times: list[float] = []
    parts: list[dict[str, int]] = []
    for _ in range(repeats):
        if decoder is not None:
            decoder.part_times_ns()
        times.append(step_ms(runner, rows))
        if decoder is not None:
            parts.append(decoder.part_times_ns())
    medians = {
        part: statistics.median(p[part] for p in parts) / 1e6 for part in (parts or [{}])[0]
    }
    return statistics.median(times), medians


if __name__ == "__main__":
    main()
