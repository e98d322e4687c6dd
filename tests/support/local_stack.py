"""`headrace-local` as a process of one test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.local.leash import leashed
from tests.support.polling import eventually
from tests.support.time_scale import scaled


class LocalStack:
    """One launcher; its temporary files go to a folder of its own, so that a test can see what is left."""

    def __init__(
        self, folder: Path, *flags: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.temporary = folder / "temporary"
        self._flags: Sequence[str] = flags
        self._environment = dict(environment or {})

    def __enter__(self) -> Self:
        self.temporary.mkdir(exist_ok=True)
        self._output = (self.folder / "output").open("w+")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        command = [sys.executable, "-m", "deploy.local", "--ready-file", str(self.ready_file)]
        self.process = subprocess.Popen(
            leashed([*command, "--port=0", *self._flags]),
            env={**inherited, **self._environment, "TMPDIR": str(self.temporary)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(scaled(60))
        if error is not None:
            error.add_note(f"headrace-local said:\n{self.said()}")
        self._output.close()

    def report(self) -> dict[str, Any]:
        """The ready file, once it is there."""
        eventually(
            lambda: self.ready_file.exists() or self.process.poll() is not None, within_s=240
        )
        assert self.process.poll() is None, self.said()
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        return found

    def pids(self) -> dict[str, int]:
        """Process id of each child."""
        return {name: child["pid"] for name, child in self.report()["children"].items()}

    def said(self) -> str:
        """stdout and stderr so far."""
        self._output.seek(0)
        return self._output.read()

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send the signal; the exit status."""
        self.process.send_signal(signum)
        return self.wait()

    def wait(self, within_s: float = 180) -> int:
        """The exit status, once it ends by itself."""
        return self.process.wait(scaled(within_s))


def is_running(pid: int) -> bool:
    """Whether the process is alive; a zombie that nobody reaps yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
