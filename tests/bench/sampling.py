"""What sampling costs beside a decode step of the default model: 64 rows behind English prompts, kind by kind.

python -m tests.bench.sampling [--repeats N]
"""

import argparse
import statistics
import time
from typing import Any

import torch

from common.domain import SamplingParams
from tests.bench.quality import texts
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Draw, Row
from worker.engine.seen_tokens import SeenTokens
from worker.model.checkpoint import find_checkpoint
from worker.model.load import load_model
from worker.sampling.kernel_draw import KernelDraw
from worker.sampling.sampler import sample

NUM_ROWS = 64
PROMPT_TOKENS = 256
PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1}
KINDS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "greedy, penalties": {"temperature": 0.0, **PENALTIES},
    "temperature 1": {},
    "temperature 1, penalties": PENALTIES,
    "top-k 50": {"top_k": 50},
    "top-p 0.9, temperature 0.7": {"top_p": 0.9, "temperature": 0.7},
    "top-p 0.9, temperature 1": {"top_p": 0.9},
    "top-k 50, top-p 0.9": {"top_k": 50, "top_p": 0.9},
    "min-p 0.05": {"min_p": 0.05},
    "typical 0.9": {"typical_p": 0.9},
    "greedy, log probabilities": {"temperature": 0.0},
    "greedy, 20 alternatives": {"temperature": 0.0},
}
NUM_TOP = {"greedy, log probabilities": 0, "greedy, 20 alternatives": 20}


def draws(
    prompts: list[list[int]], params: dict[str, float], num_top: int | None = None
) -> list[Draw]:
    """One for each prompt, by its own seed."""
    made = []
    for seed, prompt in enumerate(prompts):
        sampling: Any = SamplingParams(seed, **params)  # type: ignore[arg-type]
        seen = SeenTokens(prompt) if sampling.has_penalties else None
        if seen is not None:
            for token_id in prompt[:64]:
                seen.add(token_id)
        made.append(Draw(sampling, 0, len(prompt), seen=seen, num_top=num_top))
    return made


def main() -> None:
    """Print medians; steps and samplings alternate, so that both meet the same machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    each = -(-(PROMPT_TOKENS + 1) // 16)
    settings = ModelSettings(
        kv_blocks=NUM_ROWS * each, runner=RunnerKind.LEAN, context_tokens=1024, threads=2
    )
    prompts = texts(find_checkpoint(settings, lambda _: None), NUM_ROWS, PROMPT_TOKENS)
    decoder: Any = load_model(settings, lambda _: None).runner.decoder  # type: ignore[attr-defined]
    draw_tokens = KernelDraw(decoder)
    tables = [range(i * each, (i + 1) * each) for i in range(NUM_ROWS)]
    for prompt, table in zip(prompts, tables, strict=True):
        decoder.logits([Row(prompt[:-1], 0, table, None)], [0])
    rows = [
        Row(prompt[-1:], PROMPT_TOKENS - 1, table, None)
        for prompt, table in zip(prompts, tables, strict=True)
    ]
    steps: list[float] = []
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    wanted = {kind: draws(prompts, params, NUM_TOP.get(kind)) for kind, params in KINDS.items()}
    for _ in range(options.repeats):
        for kind in KINDS:
            began = time.perf_counter()
            logits = torch.from_numpy(decoder.logits(rows, range(NUM_ROWS)))
            steps.append(time.perf_counter() - began)
            began = time.perf_counter()
            sample(logits, wanted[kind], draw_tokens)
            times[kind].append(time.perf_counter() - began)
    step = statistics.median(steps)
    print(f"{'decode step':28} {step * 1e3:7.2f} ms")
    for kind, found in times.items():
        median = statistics.median(found)
        print(f"{kind:28} {median * 1e3:7.2f} ms {median / step:7.1%}")


if __name__ == "__main__":
    main()
