"""One child process of the launcher: start, wait until it serves, stop."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local.child_log import ChildLog
from deploy.local.leash import leashed
from deploy.local.readiness import Endpoints, Readiness

_LOOK_EVERY_S = 0.05
_KILLED_WITHIN_S = 10.0
_READ_OUT_WITHIN_S = 2.0


@dataclass(frozen=True)
class ChildSpec:
    """What runs under which name, and how it is started, recognised and stopped."""

    name: str
    command: tuple[str, ...]
    readiness: Readiness
    environment: Mapping[str, str] = field(default_factory=dict)
    # Endpoint → flag. A port chosen at the first start is kept for later ones, since others
    # know it by then.
    port_flags: Mapping[str, str] = field(default_factory=dict)
    may_finish: bool = False
    ready_within_s: float = 60.0
    stop_within_s: float = 10.0


class NotReady(Exception):
    """The child exited, or hung, before it served."""


class Child:
    """The current process of a spec, if there is one."""

    def __init__(self, spec: ChildSpec, log_folder: Path, *, echo: bool) -> None:
        self.spec = spec
        self.log_path = log_folder / f"{spec.name}.log"
        self.log = ChildLog(spec.name, self.log_path, echo=echo)
        self.endpoints: Endpoints = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process; it does not serve yet."""
        self.spec.readiness.reset()
        self.log.begin()
        self._process = await asyncio.create_subprocess_exec(
            *leashed([*self.spec.command, *self._pinned_ports()]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **self.spec.environment},
            # Its own session: Ctrl-C in the terminal reaches the launcher alone, which stops
            # the children in order.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = asyncio.create_task(self._read_output(self._process.stdout))

    async def wait_ready(self) -> None:
        """Return when it serves; `NotReady` if it exits first or takes too long."""
        try:
            async with asyncio.timeout(self.spec.ready_within_s):
                while (found := self.spec.readiness.endpoints(self.log)) is None:
                    if await self._exited_within(_LOOK_EVERY_S):
                        raise NotReady(f"{self.spec.name} exited before it served")
        except TimeoutError:
            self.kill()
            raise NotReady(
                f"{self.spec.name} took more than {self.spec.ready_within_s:g} s"
            ) from None
        self.endpoints = found

    async def wait_exit(self) -> int:
        """Its exit status (negative: the signal), with all its output read."""
        assert self._process is not None
        assert self._reader is not None
        status = await self._process.wait()
        # `wait`, because awaiting the task would hand our own cancellation on to it. A grandchild
        # may hold the pipe open, so there is a bound.
        done, _ = await asyncio.wait([self._reader], timeout=_READ_OUT_WITHIN_S)
        for reader in done:
            reader.result()
        return status

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL when its time is over; nothing if it does not run."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        if not await self._exited_within(self.spec.stop_within_s):
            self.kill()
        async with asyncio.timeout(_KILLED_WITHIN_S):
            await self.wait_exit()
        self.spec.readiness.reset()

    def kill(self) -> None:
        """SIGKILL, now."""
        self._signal(signal.SIGKILL)

    def _signal(self, signum: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signum)

    async def _exited_within(self, seconds: float) -> bool:
        assert self._process is not None
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def _read_output(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(65536):
            self.log.feed(chunk)

    def _pinned_ports(self) -> list[str]:
        return [
            part
            for endpoint, flag in self.spec.port_flags.items()
            if endpoint in self.endpoints
            for part in (flag, str(_port(self.endpoints[endpoint])))
        ]


def _port(endpoint: str) -> int:
    """The port of `host:port` or of a URL."""
    port = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").port
    assert port is not None, endpoint
    return port
