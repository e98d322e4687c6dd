"""Engines without a server of their own: a driver in their interpreter, a line of JSON for each run."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import Answer
from tests.bench.peers.contender import tree_peak_mb

_LINE_LIMIT_BYTES = 1 << 24
"""The arrivals of 64 requests are 200 kB."""


class InProcess:
    """A driver that has loaded its model. Its clock is the machine's monotonic one, as ours is."""

    def __init__(
        self, process: asyncio.subprocess.Process, version: str, started_s: float
    ) -> None:
        """``process`` answers each line on its standard input with one on its standard output."""
        self._process = process
        self.version = version
        self.started_s = started_s

    async def run(
        self, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
    ) -> list[Answer]:
        """As ``Running``; no server and no client take time."""
        job = {
            "prompts": list(prompts),
            "concurrency": concurrency,
            "output_tokens": output_tokens,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        answers = await _line(self._process)
        return [Answer(sent_s, arrivals) for sent_s, arrivals in answers]

    def peak_mb(self) -> float:
        """As ``Running``."""
        return tree_peak_mb(self._process.pid)


@contextlib.asynccontextmanager
async def driven(python: Path, driver: str, *arguments: str) -> AsyncIterator[InProcess]:
    """``driver``, a script beside this module, run by ``python``: with the block it ends."""
    began_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        python,
        Path(__file__).with_name(driver),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT_BYTES,
    )
    try:
        version = await _line(process)
        yield InProcess(process, version, time.perf_counter() - began_s)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"the driver ended with code {await process.wait()}")
    return json.loads(line)
