"""``python -m tests.bench.long_prompt``: what short chats notice of a prompt as long as the context, every few seconds (B36).

Chats come steadily, whatever becomes of them: for ``--seconds`` alone, then as long beside long prompts, one at a time. Prints
first token and gaps between tokens of the chats, calm and beside, and what the one is of the other. Figures of a busy machine
say little, and none of them counts where long prompts take longer than ``--every`` and chats queue.
"""

import argparse
import asyncio
import functools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.client import AsyncClient
from tests.bench.measure import Answer, Ask, Figures, ask_headrace, figures_of
from tests.bench.workload import english
from tests.support.stack import SIMULATED, running_stack

SIMULATED_SPEED = ("--step-ms", "8", "--prefill-tokens-per-s", "2800")
"""About that of the default model in int8 on one core."""
CHAT_PROMPT_TOKENS = (16, 64)
LONG_OUTPUT_TOKENS = 8
_SHOWN = ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")


@dataclass(frozen=True)
class Result:
    """Both halves, and when the long prompts had their first token and their last, in seconds after they were sent."""

    calm: Figures
    beside: Figures
    long_tokens: int
    long_first_s: Sequence[float]
    long_done_s: Sequence[float]

    @property
    def ratios(self) -> dict[str, float]:
        """Beside over calm."""
        calm, beside = self.calm.as_dict(), self.beside.as_dict()
        return {name: beside[name] / calm[name] for name in _SHOWN}

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "calm": self.calm.as_dict(),
            "beside": self.beside.as_dict(),
            "ratios": self.ratios,
            "long_tokens": self.long_tokens,
            "long_first_s": self.long_first_s,
            "long_done_s": self.long_done_s,
        }


class Prompts:
    """Cut from English text, so that no two begin alike."""

    def __init__(self, token_ids: Sequence[int], seed: int) -> None:
        """Of a text that is longer than each of them."""
        self._token_ids = token_ids
        self._rng = random.Random(seed)

    def take(self, num_tokens: int) -> list[int]:
        """The next one."""
        room = len(self._token_ids) - num_tokens
        start = self._rng.randrange(room)
        return [*self._token_ids[start : start + num_tokens]]

    def chat(self) -> list[int]:
        """A short one."""
        return self.take(self._rng.randint(*CHAT_PROMPT_TOKENS))


async def steadily(ask: Ask, prompts: Sequence[Sequence[int]], every_s: float) -> list[Answer]:
    """Send each in its turn, whatever becomes of those before it; all answers, in that order."""

    async def one(prompt: Sequence[int]) -> Answer:
        sent_s = time.perf_counter()
        return Answer(sent_s, [(time.perf_counter(), count) async for count in ask(prompt)])

    began_s, sent = time.perf_counter(), []
    async with asyncio.TaskGroup() as group:
        for number, prompt in enumerate(prompts):
            await asyncio.sleep(began_s + number * every_s - time.perf_counter())
            sent.append(group.create_task(one(prompt)))
    return [task.result() for task in sent]


async def one_at_a_time(
    ask: Ask, prompts: Prompts, num_tokens: int, every_s: float, chats: asyncio.Task[list[Answer]]
) -> list[Answer]:
    """A long prompt every so often, or when the one before is done, until the chats are over."""
    answers: list[Answer] = []
    while not chats.done():
        sent_s = time.perf_counter()
        answers += await steadily(ask, [prompts.take(num_tokens)], 0.0)
        left_s = max(0.0, sent_s + every_s - time.perf_counter())
        await asyncio.wait([chats], timeout=left_s)
    return answers


async def measure(client: AsyncClient, options: argparse.Namespace) -> Result:
    """Both halves, one after the other."""
    (model,) = await client.models()
    long_tokens = options.long_tokens or model.context_tokens - LONG_OUTPUT_TOKENS
    text = english(random.Random(options.seed), long_tokens // 4)
    counted = await client.count_tokens(text, model=model.name, return_token_ids=True)
    assert len(counted.token_ids) > long_tokens, len(counted.token_ids)
    prompts = Prompts(counted.token_ids, options.seed)
    ask_chat = functools.partial(ask_headrace, client, model.name, options.tokens)
    ask_long = functools.partial(ask_headrace, client, model.name, LONG_OUTPUT_TOKENS)
    num_chats = max(2, int(options.seconds * options.rate))
    await steadily(ask_chat, [prompts.chat() for _ in range(4)], 0.0)

    async def chats() -> list[Answer]:
        return await steadily(
            ask_chat, [prompts.chat() for _ in range(num_chats)], 1 / options.rate
        )

    def figures(answers: list[Answer]) -> Figures:
        return figures_of(answers, 0, options.tokens)

    calm = figures(await chats())
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(chats())
        long_ones = await one_at_a_time(ask_long, prompts, long_tokens, options.every, beside)
    return Result(
        calm,
        figures(beside.result()),
        long_tokens,
        [one.arrivals[0][0] - one.sent_s for one in long_ones],
        [one.arrivals[-1][0] - one.sent_s for one in long_ones],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    options = _parser().parse_args(arguments)
    simulated = (*SIMULATED, *SIMULATED_SPEED) if options.engine == "simulated" else ()
    with running_stack(
        worker_flags=[*simulated, *options.worker_flags], ready_within_s=600
    ) as stack:
        result = asyncio.run(_run(stack.targets[0], options))
    _print(result)
    if options.json:
        options.json.write_text(json.dumps(result.as_dict(), indent=2))


async def _run(target: str, options: argparse.Namespace) -> Result:
    async with AsyncClient(target) as client:
        return await measure(client, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.long_prompt", description=__doc__)
    parser.add_argument("--engine", choices=["model", "simulated"], default="simulated")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each half")
    parser.add_argument("--rate", type=float, default=2.0, help="chats a second")
    parser.add_argument("--tokens", type=int, default=32, help="of a chat's answer")
    parser.add_argument(
        "--every",
        type=float,
        default=5.0,
        help="seconds from one long prompt to the next, at least",
    )
    parser.add_argument("--long-tokens", type=int, help="default as many as the context holds")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("worker_flags", nargs="*", help="after --: flags of the stack's worker")
    return parser


def _print(result: Result) -> None:
    halves = (result.calm.as_dict(), result.beside.as_dict(), result.ratios)
    print(f"{'chats, ms':12}  {'calm':>8}  {'beside':>8}  {'ratio':>6}")
    for name in _SHOWN:
        calm, beside, ratio = (half[name] for half in halves)
        label = name.removesuffix("_ms").replace("_", " ").upper()
        print(f"{label:12}  {calm:8.1f}  {beside:8.1f}  {ratio:6.2f}")
    first, done = result.long_first_s, result.long_done_s
    print(
        f"{len(first)} prompts of {result.long_tokens} tokens: first token after {min(first):.1f} to {max(first):.1f} s,"
        f" done after {min(done):.1f} to {max(done):.1f} s"
    )


if __name__ == "__main__":
    main()
