"""Fixtures of the replays."""

from collections.abc import AsyncIterator

import pytest

from common.streams import inbox
from common.streams.node import Node
from tests.integration.protocol.replayed import PARTITION
from tests.support.redis_server import RedisServer


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[Node]:
    """Connections to a Redis in which the partition has its groups."""
    node = Node(redis_server.url)
    await inbox.create_groups(node, PARTITION)
    yield node
    await node.close()
