"""``python -m tests.bench.control``: what the control plane carries, with the simulated engine and everything included.

Three figures: streamed tokens per second with many long streams, small requests accepted and answered per second, and,
on the idle stack, the time from a client's call to its first token. The engine takes next to no time, so client, gateway,
Redis, scheduler and worker are all that is measured; ``--step-ms`` makes it as slow as a real one.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.client import AsyncClient
from tests.bench.costs import Costs, per_token_us
from tests.support.stack import SIMULATED, running_stack

_MODEL = "sim"
_PROMPT = list(range(40, 56))
_IDLE_PAUSE_S = 0.02


@dataclass(frozen=True)
class Rate:
    """So many of something a second, and what each cost the processes."""

    per_s: float
    cpu_us: dict[str, float]


async def stream_tokens(
    client: AsyncClient, costs: Costs, *, streams: int, tokens: int, rounds: int
) -> Rate:
    """``streams`` streams of ``tokens`` tokens at once; the median of the rounds."""

    async def one() -> int:
        stream = client.stream(_PROMPT, model=_MODEL, max_tokens=tokens, ignore_eos=True)
        async with stream:
            return sum([event.count async for event in stream])

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(one() for _ in range(streams))))

    return await _rate(all_of_them, costs, rounds)


async def answer_small(
    client: AsyncClient, costs: Costs, *, lanes: int, requests: int, rounds: int
) -> Rate:
    """Whole answers of one token, ``lanes`` requests at once; the median of the rounds."""

    async def all_of_them() -> int:
        left = iter(range(requests))

        async def lane() -> int:
            answered = 0
            for _ in left:
                await client.generate(_PROMPT, model=_MODEL, max_tokens=1, ignore_eos=True)
                answered += 1
            return answered

        return sum(await asyncio.gather(*(lane() for _ in range(lanes))))

    return await _rate(all_of_them, costs, rounds)


async def first_tokens_ms(client: AsyncClient, count: int) -> list[float]:
    """Times to the first token of one request after another on an idle stack."""
    found = []
    for _ in range(count):
        await asyncio.sleep(_IDLE_PAUSE_S)  # what the former one left to do is no part of the next
        began_s = time.perf_counter()
        async with client.stream(_PROMPT, model=_MODEL, max_tokens=1, ignore_eos=True) as stream:
            found += [
                (time.perf_counter() - began_s) * 1e3 async for event in stream if event.count
            ]
    return found


async def _rate(work: Callable[[], Awaitable[int]], costs: Costs, rounds: int) -> Rate:
    await work()  # warms up
    rates, done, before = [], 0, costs.cpu_s()
    for _ in range(rounds):
        began_s = time.perf_counter()
        amount = await work()
        rates.append(amount / (time.perf_counter() - began_s))
        done += amount
    return Rate(statistics.median(rates), per_token_us(before, costs.cpu_s(), done))


async def measure(
    target: str, costs: Costs, options: argparse.Namespace
) -> dict[str, Rate | list[float]]:
    """All three, by what they are called in the table."""
    async with AsyncClient(target) as client:
        return {
            "tokens": await stream_tokens(
                client,
                costs,
                streams=options.streams,
                tokens=options.tokens,
                rounds=options.rounds,
            ),
            "requests": await answer_small(
                client,
                costs,
                lanes=options.lanes,
                requests=options.requests,
                rounds=options.rounds,
            ),
            "first": await first_tokens_ms(client, options.idle),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.control", description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024, help="of each stream")
    parser.add_argument("--lanes", type=int, default=128, help="small requests at once")
    parser.add_argument("--requests", type=int, default=2000, help="small requests of a round")
    parser.add_argument("--idle", type=int, default=300, help="requests that find the stack idle")
    parser.add_argument("--rounds", type=int, default=3, help="medians are shown")
    parser.add_argument("--step-ms", default="0", help="time of a simulated step")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args(arguments)
    flags = [*SIMULATED, "--step-ms", options.step_ms]
    with running_stack(worker_flags=flags) as stack:
        found = asyncio.run(measure(stack.targets[0], Costs(stack), options))
    facts = {name: _facts(figure) for name, figure in found.items()}
    for name, unit in (("tokens", "tokens/s"), ("requests", "small requests/s")):
        rate = found[name]
        assert isinstance(rate, Rate)
        costs = ", ".join(f"{process} {us:.0f}" for process, us in rate.cpu_us.items())
        print(f"{rate.per_s:.0f} {unit}; CPU µs of each: {costs}")
    print(
        f"first token, idle, ms: p50 {facts['first']['p50']:.1f}, p99 {facts['first']['p99']:.1f}"
    )
    if options.json:
        options.json.write_text(json.dumps(facts, indent=2))


def _facts(figure: Rate | list[float]) -> dict[str, float]:
    if isinstance(figure, Rate):
        return {"per_s": figure.per_s, **figure.cpu_us}
    cuts = statistics.quantiles(figure, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98]}


if __name__ == "__main__":
    main()
