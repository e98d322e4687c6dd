"""A new request that finds a worker free is made ours and running by one write; whatever else it is, it is owned first."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from common.request_status import RequestStatus
from common.streams.node import Node
from common.streams.scripts import script_digest
from tests.integration.scheduler.fake_gateway import FakeGateway, eventually_empty, serving
from tests.integration.scheduler.fake_worker import FakeWorker, expected, working
from tests.integration.scheduler.running_scheduler import scheduling
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import TcpProxy, running_proxy
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_DIGESTS = {script_digest(name): name for name in ("own", "start", "take")}


@contextlib.asynccontextmanager
async def _watching(node: Node) -> AsyncIterator[list[str]]:
    """Which of the scripts that take a request were called, in order."""
    seen: list[str] = []

    async def watch(client) -> None:
        async with client.monitor() as monitor:
            is_watching.set()
            async for command in monitor.listen():
                words = command["command"].split()
                if words[0] == "EVALSHA" and words[1] in _DIGESTS:
                    seen.append(_DIGESTS[words[1]])

    is_watching = asyncio.Event()
    task = asyncio.create_task(node.call(watch))
    await is_watching.wait()
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _becomes(seen: list[str], wanted: list[str]) -> None:
    """What is watched comes over a connection of its own, and so may be told later than what it led to."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(scaled(30)):
            while seen != wanted:  # noqa: ASYNC110 - Redis' doing
                await asyncio.sleep(0.01)
    assert seen == wanted


async def _run_one(gateway: FakeGateway) -> None:
    """After the first request the scheduler knows the node's time."""
    request_id = await gateway.admit((9, 9), max_tokens=2)
    assert (await gateway.terminal(request_id)).status is RequestStatus.FINISHED


@contextlib.asynccontextmanager
async def _behind_a_proxy(
    redis_server: RedisServer, node: Node, worker: FakeWorker
) -> AsyncIterator[tuple[TcpProxy, FakeGateway]]:
    """A scheduler that reaches Redis through a proxy, and has had its first request."""
    with running_proxy(redis_server.port) as proxy:
        async with (
            scheduling(f"redis://127.0.0.1:{proxy.port}/0") as scheduler,
            serving(node) as gateway,
            working(worker, scheduler.address),
        ):
            await worker.until(lambda w: w.is_welcome)
            await _run_one(gateway)
            yield proxy, gateway


async def test_a_free_worker_gets_a_new_request_by_one_write(
    redis_server: RedisServer, node: Node
):
    """Neither owned nor taken, but started; what waits for a place is owned, and taken when there is one."""
    worker = FakeWorker(max_seqs=1)
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        await _run_one(gateway)
        async with _watching(node) as seen:
            worker.steps_left = 1
            first = await gateway.admit((5, 6), max_tokens=40)
            await gateway.until(first, lambda p: p.next_seq >= 1)
            await _becomes(seen, ["start"])
            second = await gateway.admit((6, 7), max_tokens=4)
            await _becomes(seen, ["start", "own"])
            worker.steps_left = None
            for request_id, prompt, count in ((first, (5, 6), 40), (second, (6, 7), 4)):
                terminal = await gateway.terminal(request_id)
                assert terminal.progress.choices[0].token_ids == expected(prompt, count)
                assert terminal.timings.attempts == 1
                assert 0 <= terminal.timings.queue_s <= terminal.timings.time_to_first_token_s
            await _becomes(seen, ["start", "own", "take"])
        await eventually_empty(node)


async def test_what_was_cancelled_meanwhile_does_not_start(redis_server: RedisServer, node: Node):
    """A flag that was set between admission and start is heeded: the request is owned, and ends without a token."""
    worker = FakeWorker()
    async with (
        scheduling(redis_server.url) as scheduler,
        serving(node) as gateway,
        working(worker, scheduler.address),
    ):
        await worker.until(lambda w: w.is_welcome)
        await _run_one(gateway)
        async with _watching(node) as seen:
            request_id = await gateway.admit((5, 6), max_tokens=4, cancelled="cancelled")
            terminal = await gateway.terminal(request_id)
            await _becomes(seen, ["start", "own"])
        assert terminal.status is RequestStatus.CANCELLED
        assert terminal.usage.completion_tokens == 0
        assert not worker.running
        again = await gateway.admit((6, 7), max_tokens=3)
        assert (await gateway.terminal(again)).status is RequestStatus.FINISHED
        await eventually_empty(node)


async def test_a_start_whose_answer_is_lost_is_recovered(redis_server: RedisServer, node: Node):
    """Repeated, it finds a request with a past: that is owned behind a fence, and no token is lost or doubled."""
    worker = FakeWorker()
    async with _behind_a_proxy(redis_server, node, worker) as (proxy, gateway):
        async with _watching(node) as seen:
            proxy.drop_replies(script_digest("start").encode(), count=1)
            request_id = await gateway.admit((5, 6), max_tokens=30)
            terminal = await gateway.terminal(request_id)
            await _becomes(seen, ["start", "start", "own", "take"])
        assert terminal.status is RequestStatus.FINISHED
        assert terminal.progress.choices[0].token_ids == expected((5, 6), 30)
        assert terminal.usage.completion_tokens == 30
        assert terminal.progress.epoch == 2
        await eventually_empty(node)
