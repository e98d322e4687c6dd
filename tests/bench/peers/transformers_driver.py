"""Transformers' continuous batching in bfloat16, in its own interpreter: ``transformers_driver.py FOLDER THREADS``."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from driver_lines import Answers, own_output, serve


def main() -> None:
    """Load, then answer jobs."""
    lines = own_output()
    folder, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="sdpa"
    )

    def run(prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int) -> Answers:
        return closed_loop(model, prompts, concurrency, output_tokens)

    serve(transformers.__version__, run, lines)


def closed_loop(
    model: Any, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
) -> Answers:
    """A manager for one run; a request that ends makes room for the next prompt."""
    config = transformers.GenerationConfig(
        max_new_tokens=output_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    waiting = list(enumerate(prompts))[::-1]
    answers: list[tuple[float, list[tuple[float, int]]]] = [(0.0, [])] * len(prompts)
    seen = [0] * len(prompts)
    running = 0
    # Unless told it takes most of the machine's memory.
    pool = transformers.ContinuousBatchingConfig(num_blocks=96, allow_block_sharing=False)
    with model.continuous_batching_context_manager(
        generation_config=config, continuous_batching_config=pool
    ) as manager:
        while waiting or running:
            while waiting and running < concurrency:
                number, prompt = waiting.pop()
                answers[number] = (time.perf_counter(), [])
                manager.add_request(
                    list(prompt),
                    request_id=str(number),
                    max_new_tokens=output_tokens,
                    streaming=True,
                )
                running += 1
            output = manager.get_result(timeout=1)
            if output is None:
                continue
            number = int(output.request_id)
            count = min(len(output.generated_tokens), output_tokens) - seen[number]
            if count > 0:
                answers[number][1].append((time.perf_counter(), count))
                seen[number] += count
            if output.is_finished():
                running -= 1
    return answers


if __name__ == "__main__":
    main()
