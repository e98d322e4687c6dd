"""``python -m tests.bench.peers``: Headrace and its peers in turn, the same prompts, ratios of one run.

Each round brings every contender up, warms it up, measures it at each concurrency and ends it; figures are medians
over the rounds. What is missing is installed into ``.venv/peers`` first, which takes long and several GB.
"""

import argparse
import asyncio
import subprocess
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import Tokenizer

from tests.bench.measure import figures_of
from tests.bench.peers.contender import Contender
from tests.bench.peers.contenders import CONTENDERS
from tests.bench.peers.models import MODELS
from tests.bench.peers.report import OURS, Result, ratios, said, table, write
from tests.bench.workload import OUTPUT_TOKENS, texts

FEW_REQUESTS = 12
"""At concurrency 1 the whole workload would take long and say no more."""
WARM_UP_REQUESTS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, measure, print, keep."""
    options = _parser().parse_args(arguments)
    contenders = _chosen(options)
    for engine in sorted({contender.engine for contender in contenders} - {OURS}):
        subprocess.run([Path(__file__).with_name("install.sh"), engine], check=True)
    folder = MODELS[options.model]()
    prompts = _prompts(folder, options.seed)
    results = [Result(contender) for contender in contenders]
    for number in range(options.rounds):
        # Forwards and backwards: what changes with time does not always meet the same one.
        for result in results if number % 2 == 0 else reversed(results):
            print(f"round {number + 1}: {result.contender.name}", file=sys.stderr, flush=True)
            try:
                asyncio.run(_measure(result, folder, prompts, options.concurrency))
            except Exception as error:  # whatever a peer does, the others' figures stay
                traceback.print_exc()
                result.failures.append(f"round {number + 1}: {type(error).__name__}: {error}")
    whole = [result for result in results if result.is_whole(options.concurrency)]
    if whole:
        print(table(whole))
        print(*map(said, ratios(whole)), sep="\n")
    name = options.name or f"{datetime.now(UTC):%Y-%m-%d}-{options.model}"
    write(options.results, name, options.model, options.seed, results, whole)
    print(f"kept in {options.results / name}.json and .png")
    failed = [f"{r.contender.name}: {failure}" for r in results for failure in r.failures]
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), default="smollm2")
    parser.add_argument("--only", type=_words, help="names that contain one of these, as int8,q4")
    parser.add_argument("--without", type=_words, default=[], help="names to leave out")
    parser.add_argument("--concurrency", type=_numbers, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7, help="of prompts and their lengths")
    parser.add_argument("--results", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--name", help="of the files; default: date and model")
    return parser


def _chosen(options: argparse.Namespace) -> list[Contender]:
    def named(contender: Contender, words: Sequence[str]) -> bool:
        return any(word.lower() in contender.name.lower() for word in words)

    chosen = [
        contender
        for contender in CONTENDERS
        if (options.only is None or named(contender, options.only))
        and not named(contender, options.without)
    ]
    if not chosen:
        raise SystemExit("--only and --without leave nobody")
    return chosen


def _prompts(folder: Path, seed: int) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(text).ids[:length] for text, length in texts(seed)]


async def _measure(
    result: Result, folder: Path, prompts: Sequence[Sequence[int]], levels: Sequence[int]
) -> None:
    async with result.contender.bring_up(folder) as running:
        result.version = running.version
        result.started_s.append(running.started_s)
        await running.run(prompts[:WARM_UP_REQUESTS], WARM_UP_REQUESTS, OUTPUT_TOKENS)
        for level in levels:
            count = FEW_REQUESTS if level == 1 else len(prompts)
            answers = await running.run(prompts[:count], level, OUTPUT_TOKENS)
            figures = figures_of(answers, level, OUTPUT_TOKENS)
            result.rounds.setdefault(level, []).append(figures)
            print(f"  {level}: {figures.output_tokens_per_s:.1f} tokens/s", file=sys.stderr)
        result.peak_mb.append(running.peak_mb())


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
