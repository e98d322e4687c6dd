"""A closed loop over a workload, and what clients saw of it."""

import asyncio
import functools
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass

from headrace.client import AsyncClient
from tests.bench.workload import Workload

Ask = Callable[[Sequence[int]], AsyncIterator[int]]
"""Sends one prompt; yields how many tokens came, at each arrival."""


@dataclass(frozen=True)
class Answer:
    """What came of one request: when it was sent, and (when, how many tokens) at each arrival; one clock's seconds."""

    sent_s: float
    arrivals: Sequence[tuple[float, int]]


@dataclass(frozen=True)
class Figures:
    """One run. Times in milliseconds; ``itl``: gaps between the arrivals of one stream's tokens."""

    concurrency: int
    requests: int
    output_tokens_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


async def run_closed_loop(
    client: AsyncClient, model: str, workload: Workload, *, concurrency: int, requests: int
) -> Figures:
    """``requests`` prompts, ``concurrency`` at a time, streamed to the end."""
    prompts, output_tokens = workload.prompts[:requests], workload.output_tokens
    answers = await answers_of(client, model, prompts, concurrency, output_tokens)
    return figures_of(answers, concurrency, output_tokens)


async def answers_of(
    client: AsyncClient,
    model: str,
    prompts: Sequence[Sequence[int]],
    concurrency: int,
    output_tokens: int,
) -> list[Answer]:
    """The same, not yet worked out."""
    ask = functools.partial(ask_headrace, client, model, output_tokens)
    return await closed_loop(ask, prompts, concurrency)


async def closed_loop(
    ask: Ask, prompts: Sequence[Sequence[int]], concurrency: int
) -> list[Answer]:
    """All prompts, ``concurrency`` at a time."""
    answers: list[Answer] = []
    waiting = iter(prompts)

    async def lane() -> None:
        for prompt in waiting:
            sent_s = time.perf_counter()
            arrivals = [(time.perf_counter(), count) async for count in ask(prompt)]
            answers.append(Answer(sent_s, arrivals))

    async with asyncio.TaskGroup() as lanes:
        for _ in range(concurrency):
            lanes.create_task(lane())
    return answers


def figures_of(answers: Sequence[Answer], concurrency: int, output_tokens: int) -> Figures:
    """What a run's answers come to; each must have exactly ``output_tokens`` tokens, or they do not compare."""
    gaps_s: list[float] = []
    for answer in answers:
        tokens = sum(count for _, count in answer.arrivals)
        assert tokens == output_tokens, (
            f"{tokens} tokens came where {output_tokens} were asked for"
        )
        (last_s, first_count), *rest = answer.arrivals
        # Several tokens at once: the gap counts once for each, but the first token has none before it.
        gaps_s += [0.0] * (first_count - 1)
        for at_s, count in rest:
            gaps_s += [(at_s - last_s) / count] * count
            last_s = at_s
    began_s = min(answer.sent_s for answer in answers)
    ended_s = max(answer.arrivals[-1][0] for answer in answers)
    return Figures(
        concurrency,
        len(answers),
        output_tokens * len(answers) / (ended_s - began_s),
        *_percentiles_ms([answer.arrivals[0][0] - answer.sent_s for answer in answers]),
        *_percentiles_ms(gaps_s),
    )


async def ask_headrace(
    client: AsyncClient, model: str, output_tokens: int, prompt: Sequence[int]
) -> AsyncIterator[int]:
    """One greedy stream; how many tokens came, at each arrival."""
    stream = client.stream(
        prompt,
        model=model,
        max_tokens=output_tokens,
        ignore_eos=True,
        temperature=0.0,
        # The same prompts come again at each concurrency: nothing may be left of the former time.
        bypass_prefix_cache=True,
    )
    async with stream:
        async for event in stream:
            if event.count:
                yield event.count


def _percentiles_ms(values_s: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values_s, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3
