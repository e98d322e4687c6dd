"""Who gets a session with a scheduler, over real gRPC."""

import re

import pytest
from structlog.testing import capture_logs

from common.streams.node import Node
from tests.integration.scheduler.fake_worker import FakeWorker, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_second_worker_of_one_id_is_refused(redis_server: RedisServer, node: Node):
    """The one that is here keeps its session; both sides hear the id and where both of them are."""
    first, twin = FakeWorker("w1", "i1"), FakeWorker("w1", "i2")
    async with scheduling(redis_server.url) as scheduler, working(first, scheduler.address):
        await first.until(lambda w: w.is_welcome)
        with capture_logs() as lines:
            async with working(twin, scheduler.address):
                await twin.until(lambda w: len(w.refusals) >= 2)
        assert not twin.is_welcome
        assert len([m for m in first.received if m.HasField("welcome")]) == 1
        told = next(line["error"] for line in lines if line["event"] == "worker refused")
        assert "worker id w1 is taken" in told
        assert told in twin.refusals[0]
        assert len(re.findall(r"ipv[46]:\S+:\d+", told)) == 2


async def test_an_id_is_free_again_when_its_worker_has_gone(redis_server: RedisServer, node: Node):
    """A restarted worker gets in: at once after a broken connection, and after its former self's silence else."""
    former, silent = FakeWorker("w1", "i1"), FakeWorker("w2", "i1", beats=False)
    async with scheduling(redis_server.url) as scheduler:
        async with working(former, scheduler.address):
            await former.until(lambda w: w.is_welcome)
        async with working(silent, scheduler.address) as dialing:
            await silent.until(lambda w: w.is_welcome)
            for again in (FakeWorker("w1", "i2"), FakeWorker("w2", "i2")):
                async with working(again, scheduler.address):
                    await again.until(lambda w: w.is_welcome)
            assert not dialing.done()
