"""Fixtures of the scheduler's integration tests."""

from collections.abc import AsyncIterator

import pytest

from common.streams.node import Node
from tests.support.redis_server import RedisServer


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[Node]:
    """The test's own connections to its Redis."""
    node = Node(redis_server.url)
    yield node
    await node.close()
