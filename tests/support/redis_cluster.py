"""A real cluster of three primaries, all processes on loopback; slots can be moved between them."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis
from redis.crc import key_slot

from deploy.local.redis_command import Fsync
from tests.support.polling import eventually
from tests.support.ports import is_free, settled_port
from tests.support.redis_server import RedisServer, make_data_dir

_NUM_SLOTS = 16384
_BUS_OFFSET = 10_000  # fixed before Redis 7: the nodes talk to one another on port + 10000


class ClusterServer(RedisServer):
    """One node of a cluster; `restart()` comes back with its slots."""

    def __init__(self, data_dir: Path, fsync: Fsync) -> None:
        # A slow machine must not make the nodes think that one of them has failed.
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "30000"]
        super().__init__(data_dir, fsync=fsync, options=options)

    def _find_port(self) -> int:
        while True:
            port = settled_port()
            if is_free(port + _BUS_OFFSET):
                return port


class RedisCluster:
    """Three nodes that share the slots."""

    def __init__(self, servers: Sequence[ClusterServer]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Return once every node knows who serves what."""
        for server in self.servers:
            server.start()
        share = -(-_NUM_SLOTS // len(self.servers))
        for index, server in enumerate(self.servers):
            with node_client(server) as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                slots = range(index * share, min((index + 1) * share, _NUM_SLOTS))
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        for server in self.servers:
            eventually(lambda server=server: _is_complete(server, self.servers), within_s=120)

    def owner(self, key: str) -> ClusterServer:
        """The node that serves the key's slot."""
        (found,) = (s for s in self.servers if key_slot(key.encode()) in _slots_of(s))
        return found

    def begin_move(self, key: str, target: ClusterServer) -> ClusterServer:
        """Open the key's slot for a move to `target`: keys that are not there are asked for. The source."""
        slot, source = key_slot(key.encode()), self.owner(key)
        with node_client(target) as client:
            client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", _id_of(source))
        with node_client(source) as client:
            client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", _id_of(target))
        return source

    def end_move(self, key: str, source: ClusterServer, target: ClusterServer) -> None:
        """Move what the slot holds, and hand it over for good."""
        slot = key_slot(key.encode())
        with node_client(source) as client:
            while found := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                client.execute_command(
                    "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *found
                )
        for server in (target, source):
            with node_client(server) as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", _id_of(target))

    def stop(self) -> None:
        """End all processes."""
        for server in self.servers:
            server.stop()


@contextlib.contextmanager
def running_cluster(*, fsync: Fsync = Fsync.EVERYSEC) -> Iterator[RedisCluster]:
    """A started cluster in a temporary directory that goes away with it."""
    folder = make_data_dir("cluster")
    folders = [folder / str(number) for number in range(3)]
    for path in folders:
        path.mkdir()
    cluster = RedisCluster([ClusterServer(path, fsync) for path in folders])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def node_client(server: RedisServer) -> redis.Redis:
    """A plain connection to one node, without redirections."""
    return redis.Redis(port=server.port, socket_timeout=30)


def _is_complete(server: ClusterServer, servers: Sequence[ClusterServer]) -> bool:
    with node_client(server) as client:
        is_ok = b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")
        rows = client.execute_command("CLUSTER", "SLOTS")
    return is_ok and {row[2][1] for row in rows} == {member.port for member in servers}


def _slots_of(server: ClusterServer) -> set[int]:
    with node_client(server) as client:
        rows = client.execute_command("CLUSTER", "SLOTS")
    mine = [row for row in rows if row[2][1] == server.port]
    return {slot for first, last, *_ in mine for slot in range(first, last + 1)}


def _id_of(server: ClusterServer) -> str:
    with node_client(server) as client:
        return client.execute_command("CLUSTER", "MYID").decode()
