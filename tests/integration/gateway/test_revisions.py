"""Two revisions of one model name: requests go where a worker is, over the wire."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from common.streams import cards
from common.wire.card import encode_card
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import drain, max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import error_info, retry_s
from tests.integration.gateway.tiny_card import tiny_card
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def newer(scheduler: ScriptedScheduler) -> None:
    """A second revision of the model was stored after the first."""
    card = tiny_card(revision="r2")
    await cards.store_card(scheduler.node, card.model, card.revision, encode_card(card))


async def accepted_revision(gateway: RunningGateway, scheduler: ScriptedScheduler) -> str:
    """What a client is told of a new request, which then runs to its end."""
    call = gateway.inference.GenerateStream(request(stop=max_tokens(1)))
    led = await scheduler.next()
    await led.tokens(1)
    await led.finish()
    first, *_ = await drain(call)
    assert first.accepted.model_revision == led.request.model_revision
    return first.accepted.model_revision


async def test_the_newest_revision_gets_requests_while_it_is_served(
    redis_server: RedisServer, scheduler: ScriptedScheduler, newer: None, tmp_path: Path
) -> None:
    """And while nobody serves the model: a worker that comes back finds them."""
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        assert await accepted_revision(gateway, scheduler) == "r2"
    await scheduler.snapshot(revision="r2")
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        assert await accepted_revision(gateway, scheduler) == "r2"


async def test_the_former_revision_serves_when_the_newest_has_no_worker(
    redis_server: RedisServer, scheduler: ScriptedScheduler, newer: None, tmp_path: Path
) -> None:
    """Its workers stand idle otherwise, and requests wait for nobody."""
    await scheduler.snapshot(revision="r1")
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        assert await accepted_revision(gateway, scheduler) == "r1"


async def test_who_does_not_wait_is_refused_while_the_only_worker_leaves(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """hold=false counts workers that take new requests: UNAVAILABLE with advice when to come back."""
    await scheduler.snapshot(draining=True)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await gateway.inference.Generate(request(hold=False))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert error_info(refused.value).reason == "NO_WORKER"
    assert retry_s(refused.value) > 0
