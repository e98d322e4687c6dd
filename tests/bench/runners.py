"""Steps of the default model in int8, lean against generic, in one run: machines differ, and so do their moods.

python -m tests.bench.runners [--repeats N] [--threads N]
"""

import argparse
import random
import statistics
import time
from typing import Any

import torch

from common.domain import SamplingParams
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Draw, Row
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


def main() -> None:
    """Print medians, their ratio and where the lean decoder's time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    threads = options.threads or torch.get_num_threads()
    runners: dict[RunnerKind, Any] = {}
    for kind in (RunnerKind.GENERIC, RunnerKind.LEAN):
        settings = ModelSettings(
            kv_blocks=max(BATCHES) * BLOCKS_PER_ROW,
            runner=kind,
            threads=threads,
            context_tokens=1024,
        )
        began = time.perf_counter()
        runners[kind] = load_model(settings, lambda _: None).runner
        print(f"{kind}: loaded in {time.perf_counter() - began:.1f} s", flush=True)
    lean = runners[RunnerKind.LEAN].decoder
    for name, rows in shapes().items():
        times: dict[RunnerKind, list[float]] = {kind: [] for kind in runners}
        parts: list[dict[str, int]] = []
        for kind, runner in runners.items():
            torch.set_num_threads(threads if kind is RunnerKind.GENERIC else 1)
            time.sleep(
                0.5
            )  # torch's threads stay awake for a while, and would take cores from the kernels
            step_ms(runner, rows)
            for _ in range(options.repeats):
                lean.part_times_ns()
                times[kind].append(step_ms(runner, rows))
                parts.append(lean.part_times_ns())
        parts = parts[options.repeats :]
        generic_ms, lean_ms = (statistics.median(times[kind]) for kind in runners)
        print(
            f"{name:22} generic {generic_ms:7.1f}  lean {lean_ms:7.1f} ms  x{generic_ms / lean_ms:.1f}"
        )
        medians = {part: statistics.median(p[part] for p in parts) / 1e6 for part in parts[0]}
        print("   ", "  ".join(f"{part} {ms:.2f}" for part, ms in medians.items()), flush=True)


if __name__ == "__main__":
    main()
