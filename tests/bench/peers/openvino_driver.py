"""OpenVINO GenAI's continuous batching, in its own interpreter: ``openvino_driver.py FOLDER THREADS``."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai
from driver_lines import Answers, own_output, serve


def main() -> None:
    """Load, then answer jobs."""
    lines = own_output()
    folder, threads = sys.argv[1:]
    settings = openvino_genai.SchedulerConfig()
    settings.cache_size = 2  # GiB
    settings.enable_prefix_caching = False
    settings.max_num_seqs = 64
    pipeline: Any = openvino_genai.ContinuousBatchingPipeline(
        folder, settings, "CPU", {"INFERENCE_NUM_THREADS": int(threads)}
    )

    def run(prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int) -> Answers:
        return closed_loop(pipeline, prompts, concurrency, output_tokens)

    serve(openvino_genai.__version__, run, lines)


def closed_loop(
    pipeline: Any, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
) -> Answers:
    """Step until all have ended; a place that becomes free takes the next prompt."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = output_tokens
    config.ignore_eos = True
    config.do_sample = False
    waiting = list(enumerate(prompts))[::-1]
    active: dict[int, Any] = {}
    answers: list[tuple[float, list[tuple[float, int]]]] = [(0.0, [])] * len(prompts)
    while waiting or active:
        while waiting and len(active) < concurrency:
            number, prompt = waiting.pop()
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            answers[number] = (time.perf_counter(), [])
            active[number] = pipeline.add_request(number, ids, config)
        pipeline.step()
        now_s = time.perf_counter()
        for number, handle in list(active.items()):
            arrivals = answers[number][1]
            if handle.can_read():
                (output,) = handle.read().values()
                arrivals.append((now_s, len(output.generated_ids)))
            if sum(count for _, count in arrivals) >= output_tokens:
                del active[number]
    return answers


if __name__ == "__main__":
    main()
