"""Fixtures that any test may ask for."""

from collections.abc import Iterator

import pytest

from tests.support.redis_server import RedisServer, running_redis


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A fresh, empty Redis (AOF always) of this test alone: `.url`, `.kill()`, `.restart()`, …"""
    with running_redis() as server:
        yield server
