"""A real master with a replica and three Sentinels, all processes on loopback.

Until a test asks for a fail-over no Sentinel would start one, however slow the machine is.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import redis

from deploy.local.redis_command import Fsync
from tests.support.polling import eventually
from tests.support.redis_server import RedisServer, make_data_dir

MASTER_NAME = "headrace"
_NUM_SENTINELS = 3
_NEVER_MS = 600_000


class SentinelServer(RedisServer):
    """One Sentinel process that watches a master."""

    _ready_line = "+monitor master"

    def __init__(self, data_dir: Path, master_port: int) -> None:
        super().__init__(data_dir)
        self._master_port = master_port

    def _command(self) -> list[str]:
        # A Sentinel keeps what it learns in its configuration file, so it is written once only.
        config = self._data_dir / "sentinel.conf"
        if not config.exists() or f"port {self.port}\n" not in config.read_text():
            config.write_text(
                f"port {self.port}\nbind 127.0.0.1\ndir {self._data_dir}\n"
                f"sentinel monitor {MASTER_NAME} 127.0.0.1 {self._master_port} 2\n"
                f"sentinel down-after-milliseconds {MASTER_NAME} {_NEVER_MS}\n"
                f"sentinel failover-timeout {MASTER_NAME} 3000\n"
            )
        return [str(self._binary), str(config), "--sentinel"]


class SentinelStack:
    """Master, replica and Sentinels; a fail-over can be caused, and is not waited for."""

    def __init__(self, master: RedisServer, replica: RedisServer, folder: Path) -> None:
        self.master = master
        self.replica = replica
        self.sentinels: list[SentinelServer] = []
        self._folder = folder

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER_NAME}/0"

    def start(self) -> None:
        """Return once the replica is in step and every Sentinel knows of everybody."""
        self.master.start()
        self.replica.start()
        with _client(self.replica.port) as client:
            client.replicaof("127.0.0.1", self.master.port)
        self.wait_in_step()
        for number in range(_NUM_SENTINELS):
            sentinel = SentinelServer(_made(self._folder / f"s{number}"), self.master.port)
            self.sentinels.append(sentinel)
            sentinel.start()
        for sentinel in self.sentinels:
            with _client(sentinel.port) as client:
                eventually(lambda client=client: _knows_all(client), within_s=120)

    def wait_in_step(self) -> None:
        """Return once the replica has everything that the master has."""

        def is_in_step() -> bool:
            with _client(self.master.port) as master, _client(self.replica.port) as replica:
                mine, theirs = master.info("replication"), replica.info("replication")
            is_linked = theirs.get("master_link_status") == "up"
            return is_linked and mine["master_repl_offset"] == theirs["slave_repl_offset"]

        eventually(is_in_step, within_s=120)

    def hand_over(self) -> None:
        """A planned fail-over: the replica becomes master while the master lives."""
        with _client(self.sentinels[0].port) as client:
            client.execute_command("SENTINEL", "FAILOVER", MASTER_NAME)

    def fail_over(self) -> None:
        """kill -9 of the master; from now on Sentinels notice at once when one is gone."""
        for sentinel in self.sentinels:
            with _client(sentinel.port) as client:
                client.execute_command(
                    "SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", "200"
                )
        self.master.kill()

    def stop(self) -> None:
        """End all processes."""
        for server in (*self.sentinels, self.replica, self.master):
            server.stop()


@contextlib.contextmanager
def running_sentinel(*, fsync: Fsync = Fsync.EVERYSEC) -> Iterator[SentinelStack]:
    """A started stack in a temporary directory that goes away with it."""
    folder = make_data_dir("sentinel")
    options = ["--repl-diskless-sync-delay", "0"]
    master = RedisServer(_made(folder / "master"), fsync=fsync, options=options)
    replica = RedisServer(_made(folder / "replica"), fsync=fsync, options=options)
    stack = SentinelStack(master, replica, folder)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder)


def _knows_all(client: redis.Redis) -> bool:
    state = client.sentinel_masters()[MASTER_NAME]
    return (
        state["num-other-sentinels"] == _NUM_SENTINELS - 1
        and state["num-slaves"] == 1
        and all(replica["flags"] == "slave" for replica in client.sentinel_slaves(MASTER_NAME))
    )


def _client(port: int) -> redis.Redis:
    return redis.Redis(port=port, socket_timeout=30, decode_responses=True)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
