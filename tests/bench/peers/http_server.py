"""Engines behind HTTP: their own server on a free port of loopback, asked by streaming requests."""

import asyncio
import contextlib
import functools
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.bench.measure import Answer, closed_loop
from tests.bench.peers.contender import tree_peak_mb

_START_LIMIT_S = 400.0
_STOP_LIMIT_S = 20.0


@dataclass(frozen=True)
class Dialect:
    """How one server is asked for tokens, and how its events are counted."""

    path: str
    body: Callable[[Sequence[int], int], Mapping[str, Any]]
    """From a prompt and the number of tokens wanted."""
    tokens_so_far: Callable[[Mapping[str, Any], int], int]
    """From an event and the count before it."""


class HttpServer:
    """A server that answers."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        dialect: Dialect,
        pid: int,
        version: str,
        started_s: float,
    ) -> None:
        """``client`` is bound to its address."""
        self._client = client
        self._dialect = dialect
        self._pid = pid
        self.version = version
        self.started_s = started_s

    async def run(
        self, prompts: Sequence[Sequence[int]], concurrency: int, output_tokens: int
    ) -> list[Answer]:
        """As ``Running``."""
        ask = functools.partial(self._ask, output_tokens)
        return await closed_loop(ask, prompts, concurrency)

    async def _ask(self, output_tokens: int, prompt: Sequence[int]) -> AsyncIterator[int]:
        body = self._dialect.body(prompt, output_tokens)
        seen = 0
        async with self._client.stream("POST", self._dialect.path, json=body) as response:
            if response.is_error:
                raise RuntimeError(f"{response.status_code}: {await response.aread()!r}")
            async for line in response.aiter_lines():
                event = line.removeprefix("data: ")
                if not event.startswith("{"):
                    continue
                so_far = self._dialect.tokens_so_far(json.loads(event), seen)
                if so_far > seen:
                    yield so_far - seen
                    seen = so_far

    def peak_mb(self) -> float:
        """As ``Running``."""
        return tree_peak_mb(self._pid)


@contextlib.asynccontextmanager
async def served(
    command: Sequence[str | Path],
    dialect: Dialect,
    version: str,
    *,
    environment: Mapping[str, str] | None = None,
    log: Path,
) -> AsyncIterator[HttpServer]:
    """A server started by ``command`` with ``--port N``, from when ``/health`` says yes; with the block it ends."""
    began_s = time.perf_counter()
    port = _free_port()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--port",
            str(port),
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )
    # A connection for each request: llama.cpp's server now and then closes one that is to be used again.
    client = httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        timeout=600,
        limits=httpx2.Limits(max_keepalive_connections=0),
    )
    try:
        async with client, asyncio.timeout(_START_LIMIT_S) as limit:
            while not await _is_healthy(client):
                if process.returncode is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}: see {log}")
                await asyncio.sleep(0.2)
            limit.reschedule(None)
            yield HttpServer(client, dialect, process.pid, version, time.perf_counter() - began_s)
    finally:
        await _stop(process)


async def _is_healthy(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).is_success
    except httpx2.TransportError:
        return False  # it does not listen yet


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
