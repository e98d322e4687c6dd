"""A client process of its own with many open calls, to be killed, cut off, or told to cancel: `python -m tests.support.crowd`.

Streams and unary calls alternate. It reads its orders from stdin, one a line, as JSON; `{"cancel": true}` cancels all.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.client import AsyncClient, HeadraceError

ROOT = Path(__file__).parents[2]


class Crowd:
    """The process, as a test sees it."""

    def __init__(self, target: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crowd", target],
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def ask(self, number: int, prompt: str | Sequence[int], **options: Any) -> None:
        """Open `number` calls about the same."""
        self._order({"number": number, "prompt": prompt, "options": options})

    def cancel(self) -> None:
        """Cancel every call; the process stays."""
        self._order({"cancel": True})

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(60)

    def _order(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()


@contextmanager
def crowd_at(target: str) -> Iterator[Crowd]:
    """A crowd without calls yet; it goes with the block."""
    crowd = Crowd(target)
    try:
        yield crowd
    finally:
        crowd.kill()
        assert crowd.process.stdin is not None
        crowd.process.stdin.close()


async def _run(target: str) -> None:
    calls: list[asyncio.Task[None]] = []
    async with AsyncClient(target) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            if "cancel" in order:
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
                continue
            for number in range(order["number"]):
                one = _stream if number % 2 else _unary
                calls.append(asyncio.create_task(one(client, order["prompt"], **order["options"])))


async def _stream(client: AsyncClient, prompt: Any, **options: Any) -> None:
    try:
        async with client.stream(prompt, reattach=False, **options) as stream:
            async for _ in stream:
                pass
    except HeadraceError:
        return  # how it ends is seen from the other side


async def _unary(client: AsyncClient, prompt: Any, **options: Any) -> None:
    try:
        await client.generate(prompt, **options)
    except HeadraceError:
        return


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
