"""Keeps children running, and stops them in order.

Each child has one task that starts it, waits for its exit and follows the restart policy. Stopping
ends these tasks first, so that nothing is started again that was just stopped.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.local.child import Child, ChildSpec, NotReady
from deploy.local.restart_policy import Finished, GiveUp, Restart, RestartPolicy


class GaveUp(Exception):
    """A child cannot be got to serve; the message ends with what it said last."""


class Supervisor:
    """All children of one launcher, in the order they were added."""

    def __init__(self, tasks: asyncio.TaskGroup, log_folder: Path, *, echo: bool) -> None:
        self._tasks = tasks
        self._log_folder = log_folder
        self._echo = echo
        self._children: list[Child] = []
        # Called whenever a child serves, and serves again: its process id is another one then.
        self.on_served: Callable[[], None] = lambda: None
        # By name: how a service ended that should not have, and what it said last.
        self.failures: dict[str, str] = {}
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def children(self) -> Sequence[Child]:
        return tuple(self._children)

    async def add(self, *specs: ChildSpec) -> list[Child]:
        """Start these children side by side; returns when each of them serves."""
        started = [self._keep(spec) for spec in specs]
        for _, served in started:
            await served.wait()
        return [child for child, _ in started]

    async def stop(self, order: Sequence[str]) -> None:
        """Stop everything: names starting with the first prefix together, then the next."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for prefix in order:
            group = [child for child in self._children if child.spec.name.startswith(prefix)]
            await asyncio.gather(*(child.stop() for child in group))
        for child in self._children:
            child.log.close()

    def kill(self) -> None:
        """No more patience: end every process now. `stop()` still has to follow."""
        for child in self._children:
            child.kill()

    def _keep(self, spec: ChildSpec) -> tuple[Child, asyncio.Event]:
        child = Child(spec, self._log_folder, echo=self._echo)
        served = asyncio.Event()
        self._children.append(child)
        self._keepers.append(self._tasks.create_task(self._keep_running(child, served)))
        return child, served

    async def _keep_running(self, child: Child, served: asyncio.Event) -> None:
        policy = RestartPolicy(may_finish=child.spec.may_finish)
        while True:
            served_s = await self._run_once(child, served)
            status = await child.wait_exit()
            match policy.decide(exit_status=status, served_s=served_s):
                case Finished():
                    _say(f"{child.spec.name} has finished")
                    return
                case GiveUp():
                    raise GaveUp(f"more starts would not help: {_last_words(child, status)}")
                case Restart(delay_s):
                    self.failures[child.spec.name] = _last_words(child, status)
                    _say(f"{_ending(child, status)}; starting it again in {delay_s:g} s")
                    await asyncio.sleep(delay_s)

    async def _run_once(self, child: Child, served: asyncio.Event) -> float | None:
        """From start to exit; how long it served, None if it never did."""
        began = time.monotonic()
        _say(f"starting {child.spec.name}")
        await child.start()
        try:
            await child.wait_ready()
        except NotReady as problem:
            _say(str(problem))
            return None
        since = time.monotonic()
        _say(f"{child.spec.name} serves after {since - began:.1f} s")
        served.set()
        self.on_served()
        await child.wait_exit()
        return time.monotonic() - since


def _ending(child: Child, status: int) -> str:
    how = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
    return f"{child.spec.name} {how}"


def _last_words(child: Child, status: int) -> str:
    return f"{_ending(child, status)}. The end of its log:\n{child.log.tail}"


def _say(message: str) -> None:
    print(f"headrace-local: {message}", file=sys.stderr, flush=True)
