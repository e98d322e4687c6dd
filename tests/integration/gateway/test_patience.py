"""Long waits and slow readers."""

import asyncio
import contextlib
import itertools
import random

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.domain import FinishReason, Priority
from common.errors import HeadraceError
from common.grpc_options import MAX_PUBLIC_STREAMS
from common.records import FinishRecord
from common.streams import cards
from common.wire.card import encode_card
from common.wire.snapshot import ClassStatus, QueuePosition
from gateway import boundary, patience
from gateway.boundary import abort
from gateway.caller import Context
from headrace.v1 import admin_service_pb2 as admin_pb
from headrace.v1 import admin_service_pb2_grpc, inference_service_pb2_grpc
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import (
    assert_gapless,
    drain,
    kinds,
    max_tokens,
    request,
    text_of,
)
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words
from tests.integration.gateway.statuses import error_info
from tests.integration.gateway.tiny_card import tiny_card
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

WAVE = 512
# A client's window otherwise grows to megabytes before a server notices that nobody reads.
UNREAD = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]


async def test_a_waiting_client_hears_where_it_stands(
    scheduler: ScriptedScheduler, redis_server, tmp_path
) -> None:
    """Keepalives with status and position while queued, with the status alone while running."""
    async with running_gateway(redis_server.url, tmp_path, keepalive_s=0.2) as gateway:
        call = gateway.inference.GenerateStream(request())
        stream = aiter(call)
        name = (await anext(stream)).accepted.request_id
        await scheduler.snapshot(
            positions=[QueuePosition(name, 4, "waiting: class NORMAL, position 4")]
        )
        async with asyncio.timeout(scaled(60)):
            while not (event := await anext(stream)).keepalive.HasField("queue_position"):
                assert event.keepalive.status == gen.REQUEST_STATUS_QUEUED
            assert event.keepalive.queue_position == 4
            looked = await gateway.inference.GetRequest(pb.GetRequestRequest(request_id=name))
            assert looked.waiting_for == "waiting: class NORMAL, position 4"
            led = await scheduler.next()
            await led.prompt()
            await led.tokens(1)
            while event.WhichOneof("event") != "delta":
                event = await anext(stream)
            event = await anext(stream)
            assert event.keepalive.status == gen.REQUEST_STATUS_RUNNING
            assert event.seq == 1
        await led.finish()
        await drain(call)


async def test_a_reader_that_comes_late_holds_up_nobody(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """What was generated meanwhile is all there; a stream beside it does not wait (B23)."""
    lazy = gateway.inference.GenerateStream(request(stop=max_tokens(40)))
    led = await scheduler.next()
    await led.prompt()
    for _ in range(200):
        await led.tokens(1)
    busy = gateway.inference.GenerateStream(request())
    other = await scheduler.next()
    await other.prompt()
    await other.tokens(3)
    await other.finish()
    assert text_of(await drain(busy)) == "".join(words(0, 3))
    await led.finish()
    events = await drain(lazy)
    assert assert_gapless(events) == 200
    assert text_of(events) == "".join(words(0, 200))


async def end_of(call: "grpc.aio.UnaryStreamCall") -> grpc.StatusCode:
    """How it ended, read to there."""
    async with asyncio.timeout(scaled(60)):
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
    return await call.code()


def watch_ends(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[HeadraceError]":
    """The errors that calls end with, as the gateway comes to it: a client hears of it behind what it has not read."""
    ends: asyncio.Queue[HeadraceError] = asyncio.Queue()

    async def noted(context: Context, error: HeadraceError) -> None:
        ends.put_nowait(error)
        await abort(context, error)

    monkeypatch.setattr(boundary, "abort", noted)
    return ends


async def test_a_reader_that_never_comes_is_cut_and_its_request_cancelled(
    gateway: RunningGateway, scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place and its request are free after the bound; what was sent, and why it ended, is there if it does come (B23)."""
    monkeypatch.setattr(patience, "READ_WITHIN_S", 0.5)
    async with grpc.aio.insecure_channel(gateway.address, options=UNREAD) as channel:
        stub = inference_service_pb2_grpc.InferenceServiceStub(channel)
        lazy = stub.GenerateStream(request())
        led = await scheduler.next()
        await led.prompt()
        reason = asyncio.create_task(led.cancel_flag())
        async with asyncio.timeout(scaled(60)):
            while not reason.done():
                await led.tokens(2_000)
                await asyncio.wait({reason}, timeout=0.01)
        assert await reason == "abandoned"
        beside = gateway.inference.GenerateStream(request())
        other = await scheduler.next()
        await other.prompt()
        await other.finish()
        assert kinds(await drain(beside))[-1] == "finish"
        events: list[pb.GenerateStreamResponse] = []
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await drain(lazy, events)
        assert (raised.value.code().name, error_info(raised.value).reason) == (
            "ABORTED",
            "READER_TOO_SLOW",
        )
        assert 0 < assert_gapless(events) < led.progress.next_seq


async def test_an_answer_that_nobody_reads_is_cut(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole answer has the same bound as a stream; what was sent of it, and why it ended, is there for who comes late."""
    monkeypatch.setattr(patience, "READ_WITHIN_S", 0.5)
    ended = watch_ends(monkeypatch)
    asked = pb.CountTokensRequest(model="tiny", return_token_ids=True)
    # Not such as gzip makes small.
    asked.prompt.token_ids.ids.extend(random.Random(7).randbytes(1_000_000))
    async with grpc.aio.insecure_channel(gateway.address, options=UNREAD) as channel:
        # A client that calls it a stream takes what it is asked for; on the wire it is the same call.
        method = "/headrace.v1.InferenceService/CountTokens"
        calls = [channel.unary_stream(method)(asked.SerializeToString()) for _ in range(3)]
        async with asyncio.timeout(scaled(60)):
            assert (await ended.get()).reason == "READER_TOO_SLOW"
        codes = await asyncio.gather(*(end_of(call) for call in calls))
    assert grpc.StatusCode.ABORTED in codes, codes


async def test_who_was_told_the_end_is_not_told_that_it_runs(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """The record is a moment behind the log; a look-up right after the end waits for it."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.append(FinishRecord(0, 0, FinishReason.STOP))
    await drain(call)
    looking = asyncio.ensure_future(
        gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    )
    await led.settle(FinishReason.STOP)
    assert (await looking).status == gen.REQUEST_STATUS_FINISHED


async def test_a_watcher_of_queues_who_does_not_read_is_cut_off(
    gateway: RunningGateway, scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reader of any stream: changes do not pile up for him."""
    monkeypatch.setattr(patience, "READ_WITHIN_S", 0.5)
    ended = watch_ends(monkeypatch)
    async with grpc.aio.insecure_channel(gateway.address, options=UNREAD) as channel:
        watching = admin_service_pb2_grpc.AdminServiceStub(channel).WatchQueue(
            admin_pb.WatchQueueRequest(model="tiny")
        )
        async with asyncio.timeout(scaled(60)):
            for change in itertools.count(1):
                classes = [ClassStatus(Priority.HIGH, change, 30, 1500)] * 3_000
                await scheduler.snapshot(classes=classes)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        assert (await ended.get()).reason == "READER_TOO_SLOW"
                        break
        assert await end_of(watching) is grpc.StatusCode.ABORTED


async def test_new_and_broken_cards(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """A new model is known at its first request; a card that cannot be used harms no other."""
    node = scheduler.node
    broken = tiny_card("broken", tokenizer_json=b"{}")
    await cards.store_card(node, "broken", "r1", encode_card(broken))
    await cards.store_card(node, "fresh", "r1", encode_card(tiny_card("fresh")))
    with pytest.raises(Exception, match="cannot be used"):
        await gateway.inference.GetModel(pb.GetModelRequest(model="broken"))
    fresh = await gateway.inference.GetModel(pb.GetModelRequest(model="fresh"))
    assert fresh.model.name == "fresh"
    listed = await gateway.inference.ListModels(pb.ListModelsRequest(page_size=1))
    assert [model.name for model in listed.models] == ["fresh"]
    rest = await gateway.inference.ListModels(
        pb.ListModelsRequest(page_token=listed.next_page_token)
    )
    assert [model.name for model in rest.models] == ["tiny"]


async def test_truncation_is_on_token_borders(gateway: RunningGateway) -> None:
    """The last tokens are kept."""
    counted = await gateway.inference.CountTokens(
        pb.CountTokensRequest(
            model="tiny",
            prompt=gen.Prompt(text="hello hello world", truncate_to_tokens=2),
            return_token_ids=True,
        )
    )
    assert list(counted.token_ids) == [3, 4]


async def test_a_conversation_that_the_model_cannot_have(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A model without a chat template refuses chat at its field."""
    plain = tiny_card("plain", chat_template="")
    await cards.store_card(scheduler.node, "plain", "r1", encode_card(plain))
    chat = gen.ChatPrompt(messages=[gen.ChatMessage(role=gen.ROLE_USER, content="hello")])
    with pytest.raises(Exception, match=r"prompt\.chat"):
        await gateway.inference.Generate(request(model="plain", prompt=gen.Prompt(chat=chat)))


async def test_a_flood_of_calls_stays_its_connections_own_matter(gateway: RunningGateway) -> None:
    """Beyond the bound they wait in the client; calls of another connection are answered meanwhile."""
    # Channels to one address share their connection unless they are told otherwise.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(gateway.address, options=options) as flooding:
        watch = health_pb2_grpc.HealthStub(flooding).Watch
        calls = []
        # In waves: of calls that a server has not begun yet gRPC refuses some.
        for _ in range(MAX_PUBLIC_STREAMS // WAVE):
            wave = [watch(health_pb2.HealthCheckRequest()) for _ in range(WAVE)]
            await asyncio.gather(*(call.read() for call in wave))
            calls += wave
        late = watch(health_pb2.HealthCheckRequest())
        answer = asyncio.create_task(late.read())
        assert (await gateway.inference.ListModels(pb.ListModelsRequest())).models
        assert not answer.done()
        calls[0].cancel()
        async with asyncio.timeout(scaled(60)):
            await answer
