"""Quotas are exact: over many gateways, over retries, and whoever settles."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from common import keys
from common.domain import RequestId
from common.streams.node import Node
from common.streams.quota import Debit, QuotaUse, release, reserve, settle, use_of
from common.tenancy import TenantLimits
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def node(redis_server: RedisServer) -> AsyncIterator[Node]:
    """The test's own connections to its Redis."""
    node = Node(redis_server.url)
    yield node
    await node.close()


_BOUND_S = 30.0


def new_id() -> RequestId:
    return RequestId.make("m", 1)


async def count(node: Node, request_id: RequestId, tokens: int, **limits: int):
    return await reserve(
        node, "t", request_id, tokens, TenantLimits(**limits), budget_s=60, bound_s=_BOUND_S
    )


async def use(node: Node) -> QuotaUse:
    return await use_of(node, "t", bound_s=_BOUND_S)


async def test_many_gateways_let_in_exactly_the_limit(redis_server: RedisServer):
    """Forty at once through four gateways' connections: ten, whichever they are; the rest hear when to come back."""
    nodes = [Node(redis_server.url) for _ in range(4)]
    found = await asyncio.gather(
        *(count(nodes[n % 4], new_id(), 1, requests_per_minute=10) for n in range(40))
    )
    refused = [one for one in found if one is not None]
    assert len(refused) == 30
    assert {one.limit for one in refused} == {"requests_per_minute"}
    assert all(0 < (one.retry_after_s or 0) <= 60 for one in refused)
    assert (await use(nodes[0])).requests == 10
    await asyncio.gather(*(node.close() for node in nodes))


async def test_tokens_are_reserved_and_then_what_was_used(node: Node):
    """A reservation blocks others until its end; settling twice is once; what is open is counted apart."""
    first, second = new_id(), new_id()
    assert await count(node, first, 80, tokens_per_minute=100) is None
    assert await count(node, first, 80, tokens_per_minute=100) is None  # a repeated call
    reached = await count(node, second, 30, tokens_per_minute=100)
    assert reached is not None
    assert reached.limit == "tokens_per_minute"
    assert 10 < (reached.retry_after_s or 0) <= 60
    for _ in range(2):
        await settle(node, [Debit("t", first, 50)], bound_s=_BOUND_S)
        assert await use(node) == QuotaUse(1, 50, 0)
    assert await count(node, second, 50, tokens_per_minute=100) is None
    assert await use(node) == QuotaUse(2, 100, 1)


async def test_what_can_never_fit_is_not_told_to_come_back(node: Node):
    """Larger than the limit itself, or a limit of nothing."""
    reached = await count(node, new_id(), 101, tokens_per_minute=100)
    assert reached is not None
    assert reached.retry_after_s is None
    reached = await count(node, new_id(), 1, requests_per_minute=0)
    assert reached is not None
    assert reached.retry_after_s is None


async def test_open_requests(node: Node):
    """Counted until they end; one that was refused after all counts for nothing."""
    first, second = new_id(), new_id()
    assert await count(node, first, 5, concurrent_requests=1) is None
    reached = await count(node, second, 5, concurrent_requests=1)
    assert reached is not None
    assert reached.limit == "concurrent_requests"
    await release(node, "t", first, bound_s=_BOUND_S)
    assert await use(node) == QuotaUse(0, 0, 0)
    assert await count(node, second, 5, concurrent_requests=1) is None


async def test_a_request_that_used_nothing_passes_too(redis_server: RedisServer, node: Node):
    """Cancelled before its first token and a minute old: the tenant's next requests are counted as ever."""
    import redis

    first = new_id()
    assert await count(node, first, 50, tokens_per_minute=100) is None
    await settle(node, [Debit("t", first, 0)], bound_s=_BOUND_S)
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(keys.quota("t")[1], {str(first): 1.0})
    assert await count(node, new_id(), 100, tokens_per_minute=100) is None
    assert await use(node) == QuotaUse(1, 100, 1)


async def test_the_minute_passes(redis_server: RedisServer, node: Node):
    """What is older than a minute counts no more, whether it has ended or not; a lost settlement ends by itself."""
    import redis

    first, second = new_id(), new_id()
    assert await count(node, first, 50, tokens_per_minute=100) is None
    assert await count(node, second, 50, tokens_per_minute=100) is None
    with redis.Redis.from_url(redis_server.url) as client:
        _, minute, open_ = keys.quota("t")
        client.zadd(minute, {str(first): float(client.zscore(minute, str(first)) or 0) - 61_000})
        assert (await use(node)).requests == 1
        assert await count(node, new_id(), 50, tokens_per_minute=100) is None
        assert (await use(node)).tokens == 100
        await settle(node, [Debit("t", first, 10)], bound_s=_BOUND_S)
        assert (await use(node)).tokens == 100
        client.zadd(open_, {str(second): 1.0})
        assert await count(node, new_id(), 1, concurrent_requests=2) is None
        assert all(client.pttl(key) > 0 for key in keys.quota("t"))
