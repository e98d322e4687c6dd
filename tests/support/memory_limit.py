"""A bound on a process's memory that kills it: the kernel's own, by a control group, or a watcher's where none may be made."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.process_sizes import sizes_of
from tests.support.processes import ServiceProcess

_ROOT = Path("/sys/fs/cgroup")
_LOOK_EVERY_S = 0.02


class MemoryLimit:
    """Holds one service process, through all its restarts."""

    def __init__(self, process: ServiceProcess) -> None:
        self._process = process
        self._limit: int | None = None
        self._is_over = threading.Event()
        self._group = _make_group()
        if self._group is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
        else:
            process.within = _joining(self._group)

    @property
    def used_bytes(self) -> int:
        """What counts against the bound now."""
        if self._group is None:
            return round(sizes_of(self._process.pid)[0] * 2**20)
        names = ("memory.usage_in_bytes", "memory.current")
        found = next(path for name in names if (path := self._group / name).exists())
        return int(found.read_text())

    def set(self, limit_bytes: int) -> None:
        """More than this kills."""
        self._limit = limit_bytes
        if self._group is not None:
            names = ("memory.limit_in_bytes", "memory.max")
            found = next(path for name in names if (path := self._group / name).exists())
            found.write_text(str(limit_bytes))

    def close(self) -> None:
        """No bound any more; the process has ended."""
        self._is_over.set()
        if self._group is not None:
            self._group.rmdir()

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError, AssertionError):  # not there, or just gone
                if self._limit is not None and self.used_bytes > self._limit:
                    os.kill(self._process.pid, signal.SIGKILL)


def _make_group() -> Path | None:
    for folder in (_ROOT / "memory", _ROOT):
        group = folder / f"headrace-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
            return group
        group.rmdir()
    return None


def _joining(group: Path) -> Sequence[str]:
    """Words in front of a command that let it run within a group."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")


@contextlib.contextmanager
def memory_limit(process: ServiceProcess) -> Iterator[MemoryLimit]:
    """For a process that has not been started, and has ended when the block ends."""
    limit = MemoryLimit(process)
    try:
        yield limit
    finally:
        process.close()
        limit.close()
