"""A Headrace service as a real process: started, waited for, hurt and stopped by a test.

Typical use, with one `ServiceProcess` per process:

    with ServiceProcess("gateway", environment={"HEADRACE_REDIS_URL": url}, flags=["--grpc-port", "0"]) as gateway:
        address = gateway.endpoints["grpc"]
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.leash import leashed
from tests.support.time_scale import scaled


class ServiceProcess:
    """`python -m MODULE --ready-file F FLAGS…` with a clean `HEADRACE_*` environment.

    Leaving the `with` block ends the process and removes its files; the log so far stays readable
    as `log`, also after a failure.
    """

    def __init__(
        self,
        module: str,
        *,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ready_within_s: float = 180,
    ) -> None:
        self.module = module
        self._folder = Path(tempfile.mkdtemp(prefix=f"headrace-test-{module}-"))
        self._ready_file = self._folder / "ready.json"
        self._log_file = self._folder / "log"
        self.flags = list(flags)
        self.within: Sequence[str] = ()
        """Words in front of the command, which become it."""
        self._environment = dict(environment or {})
        self._ready_within_s = ready_within_s
        self._process: subprocess.Popen[bytes] | None = None
        self._last_log = ""
        self.endpoints: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"log of {self.module}:\n{self.log}")
        self.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.module} was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """stdout and stderr of every start of this process."""
        with contextlib.suppress(FileNotFoundError):  # before the first start, after `close()`
            self._last_log = self._log_file.read_text(errors="replace")
        return self._last_log

    def start(self) -> None:
        """Start it (again); does not wait: `wait_until_ready()` does."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", self.module, "--ready-file", str(self._ready_file)]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                leashed([*self.within, *command, *self.flags]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Several workers on a small machine: threads that spin while they wait would take the
                # cores from those they wait for.
                env={"OMP_WAIT_POLICY": "PASSIVE"} | inherited | self._environment,
                start_new_session=True,
            )

    def wait_until_ready(self) -> dict[str, str]:
        """Its endpoints, once it serves; an error with its log if it exits or takes too long."""
        deadline = time.monotonic() + scaled(self._ready_within_s)
        while not self._ready_file.exists():
            # The wait is for the exit; a new file has no portable event, so it is looked for.
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.module} exited {self.process.returncode}:\n{self.log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.module} is not ready:\n{self.log}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
        self.endpoints = json.loads(self._ready_file.read_text())["endpoints"]
        return self.endpoints

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(scaled(60))

    def pause(self) -> None:
        """SIGSTOP: it neither answers nor closes its connections."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self, within_s: float = 120) -> int:
        """SIGTERM, as an operator would; returns the exit status."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(scaled(within_s))

    def wait(self, within_s: float = 120) -> int:
        """The exit status, once it ends by itself."""
        return self.process.wait(scaled(within_s))

    def close(self) -> None:
        """End it, politely if it listens, and remove its files."""
        try:
            if self._process is not None and self._process.poll() is None:
                self._end()
        finally:
            _ = self.log  # keep what it said, for the reader of a failure
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        try:
            self.stop(within_s=30)
        except subprocess.TimeoutExpired:
            self.kill()
