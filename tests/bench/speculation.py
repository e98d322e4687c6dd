"""What speculation brings, apart from everything else: the default model on texts that end by themselves.

python -m tests.bench.speculation [--rounds N] [--pairs exact,int8] [--concurrency 1,4]

One engine without gateway or Redis, on one thread; times are CPU time, so that other processes count little. Two kinds of text: answers that repeat their prompt (corrected text, changed code,
extraction) and chats that do not. Each is asked without speculation, by lookup and by a draft model, in turns; no token
may differ.

    pair     model                     draft model
    exact    float32, generic runner   the same in q4 on the lean decoder
    int8     int8, lean decoder        its first layers, on the lean decoder
"""

import argparse
import functools
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import transformers

from common.clock import monotonic_s
from common.domain import Quantization, SamplingParams, StopConditions
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.lookup import LookupProposer
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.speculation import Speculation
from worker.loading import Loaded, load
from worker.model.checkpoint import find_checkpoint
from worker.settings import SpeculationKind, WorkerSettings
from worker.text.texts import Texts

MAX_TOKENS = 200
FIRST_LAYERS = 10

_STORY = (
    "The old mill stood at the end of the village, where the river turned. Every morning the miller opened the sluice, "
    "and the wheel began to turn. Farmers came with carts full of grain and went home with white sacks of flour. In the "
    "winter of 1931 the river froze, the wheel stood still for nine weeks, and the village bought its flour in the town."
)
_CODE = (
    "def total_price(items, tax_rate):\n    total = 0\n    for item in items:\n        total = total + item.price * item.count\n"
    "    total = total + total * tax_rate\n    return total\n\ndef average_price(items):\n    total = 0\n    for item in items:\n"
    "        total = total + item.price\n    return total / len(items)\n"
)
REPEATING = (
    f"Repeat the following text word for word:\n\n{_STORY}",
    f"Correct the spelling of this text and write it out again in full:\n\n{_STORY.replace('village', 'vilage')}",
    f"Rename the variable total to amount in this Python code and print the whole code:\n\n{_CODE}",
    f"List every sentence of this text as a numbered list:\n\n{_STORY}",
)
CHATTING = (
    "Why is the sky blue? Answer in one sentence.",
    "Give me one tip for learning to cook.",
    "What is the capital of Italy, and what is it known for? Be brief.",
    "What is the difference between a river and a lake? Answer in two sentences.",
)
TEXTS = {"repeating": REPEATING, "chatting": CHATTING}


@dataclass(frozen=True)
class Run:
    """What one run of all prompts brought."""

    answers: dict[str, list[int]]
    seconds: float
    guessed: int
    right: int
    ended: int

    @property
    def rate(self) -> float:
        """Tokens a second of CPU time."""
        return sum(map(len, self.answers.values())) / self.seconds


def settings_of(pair: str, scratch: Path) -> WorkerSettings:
    """A worker's settings for a pair of models."""
    make = functools.partial(
        WorkerSettings,
        schedulers=("nowhere:1",),
        speculation=SpeculationKind.DRAFT,
        kv_memory_mb=256,
        draft_kv_memory_mb=128,
        context_tokens=1024,
        max_seqs=8,
        threads=1,
    )
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    if pair == "exact":
        return make(
            quantization=Quantization.NONE,
            runner=RunnerKind.GENERIC,
            draft_model=ModelSettings().model,
            draft_quantization=Quantization.Q4,
        )
    return make(draft_model=str(first_layers(folder, scratch / "first-layers")))


def first_layers(source: Path, target: Path) -> Path:
    """A checkpoint of the first ``FIRST_LAYERS`` layers of another one, untrained as it is."""
    weights = "*.safetensors*"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(weights))
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": FIRST_LAYERS}))
    kept = {}
    for path in source.glob("*.safetensors"):
        for name, tensor in safetensors.torch.load_file(path).items():
            parts = name.split(".")
            if "layers" not in parts or int(parts[parts.index("layers") + 1]) < FIRST_LAYERS:
                kept[name] = tensor
    safetensors.torch.save_file(kept, target / "model.safetensors", {"format": "pt"})
    return target


def ways(loaded: Loaded) -> dict[str, Speculation | None]:
    """The ways to guess over one loaded pair. They go on from run to run, as in a worker: what pays is learned."""
    speculation = loaded.speculation
    assert speculation is not None
    lookup = Speculation(LookupProposer(), speculation.times)
    return {"off": None, "lookup": lookup, "draft": speculation}


def run(
    loaded: Loaded,
    prompts: Sequence[Sequence[int]],
    speculation: Speculation | None,
    *,
    concurrency: int,
    temperature: float,
) -> Run:
    """All prompts, so many at once."""
    limits = EngineLimits(
        concurrency, 512, 128, 1024, frozenset(loaded.card.eos_token_ids), prefix_cache=False
    )
    texts = Texts(loaded.card.tokenizer_json, ())
    engine = Engine(
        loaded.runner, limits, texts.text_of, monotonic_s, loaded.costs, speculation=speculation
    )
    for i, prompt in enumerate(prompts):
        sampling = SamplingParams(i, temperature)
        engine.submit(
            Job(Ticket(f"r{i}", 1, 1), tuple(prompt), sampling, StopConditions(MAX_TOKENS))
        )
    answers: dict[str, list[int]] = {}
    guessed = right = ended = 0
    began_s = time.process_time()
    while engine.has_work:
        report = engine.step()
        guessed += report.guessed_tokens
        right += report.accepted_tokens
        for output in report.outputs:
            answers.setdefault(output.ticket.request_id, []).extend(output.token_ids)
            ended += output.finish is not None and output.finish.reason == "stop"
    return Run(answers, time.process_time() - began_s, guessed, right, ended)


def main() -> None:
    """Print a line for each kind of text and way to guess."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", default="exact,int8")
    parser.add_argument("--concurrency", default="1,4")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as scratch:
        for pair in options.pairs.split(","):
            loaded = load(settings_of(pair, Path(scratch) / pair), lambda _: None)
            found = ways(loaded)
            for concurrency in map(int, options.concurrency.split(",")):
                for kind, questions in TEXTS.items():
                    prompts = [_ids(tokenizer, question) for question in questions]
                    ask = functools.partial(
                        run,
                        loaded,
                        prompts,
                        concurrency=concurrency,
                        temperature=options.temperature,
                    )
                    _print_lines(f"{pair} {kind} at {concurrency}", found, ask, options.rounds)


def _ids(tokenizer: Any, question: str) -> list[int]:
    found: list[int] = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    return found


def _print_lines(
    title: str,
    ways: Mapping[str, Speculation | None],
    ask: Callable[[Speculation | None], Run],
    rounds: int,
) -> None:
    runs: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for way, speculation in ways.items():
            runs.setdefault(way, []).append(ask(speculation))
    plain = statistics.median(one.rate for one in runs["off"])
    for way, found in runs.items():
        assert all(one.answers == runs["off"][0].answers for one in found), f"{way} differs"
        last = found[-1]
        rate = statistics.median(one.rate for one in found)
        share = f"{last.right / last.guessed:.0%}" if last.guessed else "-"
        print(
            f"{title:26} {way:7} {rate:6.1f} tokens/s x{rate / plain:.2f}, guessed {last.guessed},"
            f" right {share}; {sum(map(len, last.answers.values()))} tokens,"
            f" {last.ended} of {len(last.answers)} ended by themselves",
            flush=True,
        )


if __name__ == "__main__":
    main()
