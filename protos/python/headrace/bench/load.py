"""Puts load on a server: so many requests at once, or so many a second whatever becomes of them."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.bench.samples import Sample
from headrace.bench.workload import Asked
from headrace.client import AsyncClient, HeadraceError


@dataclass(slots=True)
class Progress:
    """Where a level is."""

    wanted: int
    begun: int = 0
    done: int = 0
    tokens: int = 0


Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Load:
    """One level: ``concurrency`` at once, or ``rate`` a second where that is given."""

    requests: int
    concurrency: int = 1
    rate: float | None = None
    seed: int = 0


class Runner:
    """Runs levels one after the other."""

    def __init__(
        self, client: AsyncClient, model: str, workload: Iterator[Asked], tell: Tell
    ) -> None:
        """``tell`` hears of every request that ends."""
        self._client = client
        self._model = model
        self._workload = workload
        self._tell = tell
        self.errors: Counter[str] = Counter()

    async def run(self, load: Load) -> tuple[list[Sample], float]:
        """The samples of a level, and how long it took."""
        progress, samples = Progress(load.requests), list[Sample]()
        began_s = time.perf_counter()
        if load.rate is None:
            await self._closed(load, progress, samples)
        else:
            await self._open(load, load.rate, progress, samples)
        return samples, time.perf_counter() - began_s

    async def _closed(self, load: Load, progress: Progress, samples: list[Sample]) -> None:
        async def lane() -> None:
            while progress.begun < load.requests:
                progress.begun += 1
                await self._one(progress, samples)

        async with asyncio.TaskGroup() as lanes:
            for _ in range(load.concurrency):
                lanes.create_task(lane())

    async def _open(
        self, load: Load, rate: float, progress: Progress, samples: list[Sample]
    ) -> None:
        """Arrivals as independent callers make them (Poisson), each at its own time even if those before still wait."""
        rng = random.Random(load.seed)  # noqa: S311 - no secret
        due_s = time.perf_counter()
        async with asyncio.TaskGroup() as requests:
            for _ in range(load.requests):
                due_s += rng.expovariate(rate)
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                progress.begun += 1
                requests.create_task(self._one(progress, samples))

    async def _one(self, progress: Progress, samples: list[Sample]) -> None:
        asked = next(self._workload)
        began_s, first_s, tokens, error = time.perf_counter(), None, 0, ""
        stream = self._client.stream(
            asked.prompt
            if isinstance(asked.prompt, str)
            else [{"role": role, "content": content} for role, content in asked.prompt],
            model=self._model,
            max_tokens=asked.max_tokens,
            ignore_eos=True,
            temperature=0.0,
        )
        try:
            async with stream:
                async for event in stream:
                    if event.count and first_s is None:
                        first_s = time.perf_counter() - began_s
                    tokens += event.count
                    progress.tokens += event.count
        except HeadraceError as failure:
            error = failure.reason or failure.code
            self.errors[error] += 1
        samples.append(Sample(time.perf_counter() - began_s, first_s, tokens, error))
        progress.done += 1
        self._tell(progress)
