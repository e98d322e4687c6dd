"""A closed loop over a workload, and what clients saw of it."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headrace.client import AsyncClient
from tests.bench.workload import Workload


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


@dataclass
class _Samples:
    ttft_s: list[float]
    gaps_s: list[float]
    tokens: int = 0


async def run_closed_loop(
    client: AsyncClient, model: str, workload: Workload, *, concurrency: int, requests: int
) -> Figures:
    """``requests`` prompts, ``concurrency`` at a time, streamed to the end."""
    samples = _Samples([], [])
    waiting = iter(workload.prompts[:requests])

    async def lane() -> None:
        for prompt in waiting:
            await _one(client, model, prompt, workload.output_tokens, samples)

    began_s = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(concurrency)))
    took_s = time.perf_counter() - began_s
    assert samples.tokens == workload.output_tokens * min(requests, len(workload.prompts))
    return Figures(
        concurrency,
        requests,
        samples.tokens / took_s,
        *_percentiles_ms(samples.ttft_s),
        *_percentiles_ms(samples.gaps_s),
    )


async def _one(
    client: AsyncClient, model: str, prompt: Sequence[int], output_tokens: int, samples: _Samples
) -> None:
    sent_s = last_s = time.perf_counter()
    is_first = True
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
            if not event.count:
                continue
            now_s = time.perf_counter()
            if is_first:
                samples.ttft_s.append(now_s - sent_s)
            # A merged delta brings several tokens at once: the gap counts once for each.
            samples.gaps_s += [(now_s - last_s) / event.count] * (event.count - is_first)
            samples.tokens += event.count
            last_s, is_first = now_s, False


def _percentiles_ms(values_s: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values_s, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3
