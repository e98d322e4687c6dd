"""The asyncio client's streams: the same properties as the sync client's, and no leaks."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from headrace.client import (
    AsyncClient,
    Cancelled,
    InternalFailure,
    ReattachPolicy,
    TraceContext,
    Unavailable,
)
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import (
    REQUEST_ID,
    Script,
    ScriptedServer,
    accepted,
    answer,
    cut_off,
    delta,
    fail,
    finish,
    flush,
    hang_after,
    stream,
)

pytestmark = pytest.mark.integration
FAST = ReattachPolicy(max_attempts=3, first_pause_s=0.001, longest_pause_s=0.002)


async def test_a_client_may_be_made_outside_a_loop(script: Script, server: ScriptedServer) -> None:
    """Making one opens nothing; the first call does."""
    client = await asyncio.to_thread(AsyncClient, server.target)
    script.on("Generate", answer(pb.GenerateResponse(request_id=REQUEST_ID)))
    async with client:
        assert (await client.generate("x", model="tiny")).request_id == REQUEST_ID


async def test_a_broken_stream_is_continued_where_it_was(
    script: Script, server: ScriptedServer
) -> None:
    """No token is repeated or missing, held-back text included, and the trace stays the same."""
    script.on(
        "GenerateStream",
        stream([accepted(), delta(0, ["a", "b"]), flush(2, "c")], grpc.StatusCode.UNAVAILABLE),
    )
    script.on(
        "Attach",
        fail(grpc.StatusCode.UNAVAILABLE),
        stream([accepted(), flush(2, "cd"), finish(2)], attach=True),
    )
    async with AsyncClient(server.target) as client:
        tokens = client.stream("x", model="tiny", reattach=FAST)
        assert "".join([text async for text in tokens.texts()]) == "abcd"
    assert [call.request.from_seq for call in script.of("Attach")] == [2, 2]
    assert {call.metadata["traceparent"] for call in script.seen} == {tokens.trace.traceparent}


async def test_a_stream_moves_to_another_gateway(script: Script, server: ScriptedServer) -> None:
    """With several targets, the attach goes to the next one when the first is gone."""
    second = ScriptedServer(
        Script().on("Attach", stream([delta(1, ["b"]), finish(2)], attach=True))
    )
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["a"])]))
    try:
        async with AsyncClient([server.target, second.target], timeout_s=60) as client:
            texts = client.stream("x", model="tiny", reattach=FAST).texts()
            assert await anext(texts) == "a"
            await asyncio.to_thread(server.stop)
            assert [text async for text in texts] == ["b"]
    finally:
        await asyncio.to_thread(second.stop)


@pytest.fixture
def other() -> Iterator[ScriptedServer]:
    """A second gateway."""
    server = ScriptedServer(Script())
    yield server
    server.stop()


async def test_a_gateway_that_lost_the_queue_is_left(
    script: Script, server: ScriptedServer, other: ScriptedServer
) -> None:
    """It is left once another one follows the request, without gap or repeat."""
    script.on(
        "GenerateStream", hang_after([accepted(), delta(0, ["a"]), flush(1, "b"), cut_off(1)])
    )
    other.script.on(
        "Attach", stream([accepted(), flush(1, "bc"), delta(1, ["d"]), finish(2)], attach=True)
    )
    async with AsyncClient([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")
        assert "".join([text async for text in tokens.texts()]) == "abcd"
        assert await asyncio.to_thread(script.ended["GenerateStream"].wait, 60)
    [asked] = other.script.of("Attach")
    assert (asked.request.request_id, asked.request.from_seq) == (REQUEST_ID, 1)


async def test_a_stream_stays_where_nobody_else_reaches_the_queue(
    script: Script, server: ScriptedServer, other: ScriptedServer
) -> None:
    """A refusal elsewhere harms nothing: the stream goes on where it is."""
    script.on("GenerateStream", stream([accepted(), cut_off(0), delta(0, ["a"]), finish(1)]))
    away = [ErrorInfo(reason="QUEUE_UNAVAILABLE", domain="headrace")]
    other.script.on("Attach", fail(grpc.StatusCode.UNAVAILABLE, "no", away))
    async with AsyncClient([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")
        assert "".join([text async for text in tokens.texts()]) == "a"
    assert len(other.script.of("Attach")) == 1
    assert not script.of("Attach")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_ends_the_look_for_another_gateway(
    script: Script, server: ScriptedServer, other: ScriptedServer, how: str
) -> None:
    """Closed by another task, or its reader cancelled, while it tries the second gateway: both are left."""
    script.on("GenerateStream", hang_after([accepted(), cut_off(0)]))
    is_asked = threading.Event()

    def hang(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        is_asked.set()
        return hang_after([])(request, context)

    other.script.on("Attach", hang)
    async with AsyncClient([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")

        async def read() -> None:
            async for _ in tokens:
                pass

        reader = asyncio.create_task(read())
        assert await asyncio.to_thread(is_asked.wait, 60)
        if how == "closed":
            tokens.close()
        else:
            reader.cancel()
        [ended] = await asyncio.gather(reader, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError if how == "cancelled" else Cancelled)
        assert await asyncio.to_thread(script.ended["GenerateStream"].wait, 60)
        assert await asyncio.to_thread(other.script.ended["Attach"].wait, 60)


async def test_closing_as_a_pause_ends_makes_no_call(
    script: Script, server: ScriptedServer
) -> None:
    """Closed by another task in the turn of the loop in which the pause is over."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    async with AsyncClient(server.target, timeout_s=60) as client:
        tokens = client.stream("x", model="tiny", reattach=FAST)
        wait = tokens._closed.wait

        async def closed_at_the_end() -> Any:
            try:
                return await wait()
            finally:
                tokens.close()

        tokens._closed.wait = closed_at_the_end  # type: ignore[method-assign, assignment]
        assert [event.WhichOneof("event") async for event in tokens] == ["accepted"]
    assert not script.of("Attach")


async def test_attempts_are_bounded(script: Script, server: ScriptedServer) -> None:
    """When nobody answers, the stream fails with the typed error after the policy's attempts."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    script.on("Attach", fail(grpc.StatusCode.UNAVAILABLE))
    async with AsyncClient(server.target) as client:
        tokens = client.stream("x", model="tiny", reattach=FAST)
        await anext(tokens)  # accepted
        with pytest.raises(Unavailable):
            await anext(tokens)
    assert len(script.of("Attach")) == 3


async def test_lost_tokens_are_an_error(script: Script, server: ScriptedServer) -> None:
    """A gap is never passed off as an answer."""
    script.on("GenerateStream", stream([accepted(), delta(1, ["b"])]))
    async with AsyncClient(server.target) as client:
        with pytest.raises(InternalFailure):
            [event async for event in client.stream("x", model="tiny")]


async def test_closing_cancels_the_call(script: Script, server: ScriptedServer) -> None:
    """Leaving the block ends the call at the server; nothing more comes out."""
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["a"])]))
    async with AsyncClient(server.target) as client:
        async with client.stream("x", model="tiny") as tokens:
            assert await anext(tokens.texts()) == "a"
        assert await asyncio.to_thread(script.ended["GenerateStream"].wait, 60)
        assert [event async for event in tokens] == []


async def test_a_reader_that_is_cancelled_cancels_the_call(
    script: Script, server: ScriptedServer
) -> None:
    """Cancelling the task that reads is enough; it ends as cancelled itself."""
    script.on("GenerateStream", hang_after([accepted()]))
    async with AsyncClient(server.target) as client:
        tokens = client.stream("x", model="tiny")
        await anext(tokens)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(tokens)
        assert await asyncio.to_thread(script.ended["GenerateStream"].wait, 60)


async def test_a_reader_of_a_stream_that_another_task_closes(
    script: Script, server: ScriptedServer
) -> None:
    """It gets the typed error: the task itself was not cancelled."""
    script.on("GenerateStream", hang_after([accepted()]))
    async with AsyncClient(server.target) as client, asyncio.TaskGroup() as group:
        tokens = client.stream("x", model="tiny")
        await anext(tokens)

        async def read() -> None:
            with pytest.raises(Cancelled):
                await anext(tokens)

        group.create_task(read())
        await asyncio.sleep(0)  # lets the reader start to wait
        tokens.close()


async def test_unary_calls_carry_the_trace(script: Script, server: ScriptedServer) -> None:
    """A given context reaches the server as it is."""
    script.on("Generate", answer(pb.GenerateResponse()))
    trace = TraceContext.new()
    async with AsyncClient(server.target) as client:
        await client.generate("x", model="tiny", trace=trace)
    assert script.seen[0].metadata["traceparent"] == trace.traceparent
