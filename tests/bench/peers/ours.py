"""Headrace as a contender: the whole stack, asked through its gateway."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from pathlib import Path

from headrace.client import AsyncClient
from tests.bench.costs import Costs
from tests.bench.measure import Answer, answers_of
from tests.support.stack import running_stack


class Headrace:
    """A stack that serves."""

    version = version("headrace")

    def __init__(self, client: AsyncClient, model: str, costs: Costs, started_s: float) -> None:
        """``client`` is connected to the stack's gateway."""
        self._client = client
        self._model = model
        self._costs = costs
        self.started_s = started_s

    async def run(
        self, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
    ) -> list[Answer]:
        """As ``Running``."""
        return await answers_of(self._client, self._model, prompts, concurrency, output_tokens)

    def peak_mb(self) -> float:
        """As ``Running``; Redis counts too."""
        return sum(self._costs.peak_mb().values())


@contextlib.asynccontextmanager
async def whole_stack(folder: Path, *worker_flags: str) -> AsyncIterator[Headrace]:
    """One of each process, on the model in ``folder``."""
    began_s = time.perf_counter()
    with contextlib.ExitStack() as exits:
        flags = ["--model", str(folder), *worker_flags]
        stack = await asyncio.to_thread(
            exits.enter_context, running_stack(worker_flags=flags, ready_within_s=600)
        )
        started_s = time.perf_counter() - began_s
        async with AsyncClient(stack.targets[0]) as client:
            (model,) = [model.name for model in await client.models()]
            yield Headrace(client, model, Costs(stack), started_s)
