"""Calls of both clients: typed errors row by row, metadata, deadlines, paging, batches."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as rpc
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from headrace import client as api
from headrace.client import (
    AsyncClient,
    Client,
    FieldViolation,
    HeadraceError,
    Resource,
    RetryPolicy,
)
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import (
    REQUEST_ID,
    Script,
    ScriptedServer,
    answer,
    fail,
    hang_after,
    stream,
)

pytestmark = pytest.mark.integration
Code = grpc.StatusCode

ROWS = [
    pytest.param(
        Code.INVALID_ARGUMENT,
        [
            rpc.ErrorInfo(reason="CONTEXT_LENGTH_EXCEEDED", metadata={"context_tokens": "64"}),
            rpc.BadRequest(
                field_violations=[
                    rpc.BadRequest.FieldViolation(field="prompt", description="65 tokens"),
                    rpc.BadRequest.FieldViolation(field="sampling.top_p", description="above 1"),
                ]
            ),
        ],
        api.InvalidRequest,
        {
            "reason": "CONTEXT_LENGTH_EXCEEDED",
            "metadata": {"context_tokens": "64"},
            "field_violations": (
                FieldViolation("prompt", "65 tokens"),
                FieldViolation("sampling.top_p", "above 1"),
            ),
            "retry_after_s": None,
        },
        id="invalid",
    ),
    pytest.param(
        Code.NOT_FOUND,
        [
            rpc.ErrorInfo(reason="MODEL_NOT_FOUND"),
            rpc.ResourceInfo(resource_type="model", resource_name="nix"),
        ],
        api.NotFound,
        {"reason": "MODEL_NOT_FOUND", "resource": Resource("model", "nix")},
        id="model unknown",
    ),
    pytest.param(
        Code.RESOURCE_EXHAUSTED,
        [rpc.ErrorInfo(reason="QUEUE_FULL"), rpc.RetryInfo(retry_delay=Duration(seconds=2))],
        api.ResourceExhausted,
        {"reason": "QUEUE_FULL", "retry_after_s": 2.0},
        id="queue full",
    ),
    pytest.param(
        Code.RESOURCE_EXHAUSTED,
        [
            rpc.QuotaFailure(
                violations=[rpc.QuotaFailure.Violation(subject="tenant:a", description="60/min")]
            ),
            rpc.RetryInfo(retry_delay=Duration(nanos=250_000_000)),
        ],
        api.ResourceExhausted,
        {"field_violations": (FieldViolation("tenant:a", "60/min"),), "retry_after_s": 0.25},
        id="quota",
    ),
    pytest.param(
        Code.UNAVAILABLE,
        [rpc.ErrorInfo(reason="NO_WORKER"), rpc.RetryInfo(retry_delay=Duration(seconds=1))],
        api.Unavailable,
        {"reason": "NO_WORKER", "retry_after_s": 1.0},
        id="no worker",
    ),
    pytest.param(
        Code.DEADLINE_EXCEEDED,
        [rpc.ErrorInfo(reason="DEADLINE_EXCEEDED", metadata={"stage": "queue"})],
        api.DeadlineExceeded,
        {"metadata": {"stage": "queue"}},
        id="deadline",
    ),
    pytest.param(
        Code.ALREADY_EXISTS,
        [rpc.ErrorInfo(reason="IDEMPOTENCY_KEY_REUSED")],
        api.AlreadyExists,
        {"reason": "IDEMPOTENCY_KEY_REUSED"},
        id="idempotency key",
    ),
    pytest.param(
        Code.INTERNAL,
        [rpc.ErrorInfo(reason="POISON_REQUEST", metadata={"request_id": REQUEST_ID})],
        api.InternalFailure,
        {"reason": "POISON_REQUEST", "request_id": REQUEST_ID, "retry_after_s": None},
        id="poison",
    ),
    pytest.param(
        Code.CANCELLED,
        [rpc.RequestInfo(request_id=REQUEST_ID)],
        api.Cancelled,
        {"request_id": REQUEST_ID},
        id="cancelled",
    ),
    pytest.param(Code.UNIMPLEMENTED, [], api.Unimplemented, {"reason": ""}, id="unimplemented"),
    pytest.param(Code.UNAUTHENTICATED, [], api.Unauthenticated, {"resource": None}, id="no key"),
    pytest.param(Code.PERMISSION_DENIED, [], api.PermissionDenied, {}, id="not allowed"),
    pytest.param(Code.ABORTED, [], api.Aborted, {}, id="pre-empted"),
    pytest.param(Code.UNKNOWN, [], api.InternalFailure, {"request_id": None}, id="unknown"),
]


@pytest.mark.parametrize(("code", "details", "kind", "facts"), ROWS)
def test_statuses_become_typed_errors(
    client: Client,
    server: ScriptedServer,
    script: Script,
    code: grpc.StatusCode,
    details: list[Message],
    kind: type[HeadraceError],
    facts: dict[str, Any],
) -> None:
    """Each row of the status table, from a unary call and a stream of both clients."""
    script.on("Generate", fail(code, "no", details))
    script.on("GenerateStream", fail(code, "no", details))

    async def asynchronously() -> list[HeadraceError]:
        async with AsyncClient(server.target, timeout_s=60) as other:
            with pytest.raises(HeadraceError) as unary:
                await other.generate("x", model="m")
            with pytest.raises(HeadraceError) as streamed:
                await anext(other.stream("x", model="m"))
        return [unary.value, streamed.value]

    with pytest.raises(HeadraceError) as unary:
        client.generate("x", model="m")
    with pytest.raises(HeadraceError) as streamed:
        next(client.stream("x", model="m"))
    for error in [unary.value, streamed.value, *asyncio.run(asynchronously())]:
        assert type(error) is kind
        assert (error.code, error.message) == (code.name, "no")
        assert {name: getattr(error, name) for name in facts} == facts


def test_calls_are_repeated_where_the_server_says_so(
    server: ScriptedServer, script: Script
) -> None:
    """By both clients: after a full queue with advice when to come back, not after what no repetition helps."""
    advice = rpc.RetryInfo()
    advice.retry_delay.FromMilliseconds(10)
    full = fail(Code.RESOURCE_EXHAUSTED, "full", [advice])
    done = answer(pb.GenerateResponse(request_id="r"))
    policy = RetryPolicy(max_attempts=3)

    async def asynchronously() -> None:
        async with AsyncClient(server.target, timeout_s=60, retry=policy) as other:
            script.on("Generate", full, full, done)
            assert (await other.generate("x", model="m")).request_id == "r"
            script.on("Generate", fail(Code.RESOURCE_EXHAUSTED, "never"))
            with pytest.raises(HeadraceError):
                await other.generate("x", model="m")

    with Client(server.target, timeout_s=60, retry=policy) as client:
        script.on("Generate", full, full, done)
        assert client.generate("x", model="m").request_id == "r"
        script.on("Generate", fail(Code.RESOURCE_EXHAUSTED, "never"))
        with pytest.raises(HeadraceError):
            client.generate("x", model="m")
    asyncio.run(asynchronously())
    assert len(script.of("Generate")) == 2 * (3 + 1)


def test_details_that_cannot_be_read_cost_only_the_details(client: Client, script: Script) -> None:
    """A status with garbage for details still tells its code and message."""

    def garbage(_request: Any, context: grpc.ServicerContext) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),))
        context.abort(Code.NOT_FOUND, "gone")

    script.on("GetModel", garbage)
    with pytest.raises(api.NotFound) as caught:
        client.model("m")
    assert (caught.value.message, caught.value.reason) == ("gone", "")


def test_nobody_listening_is_unavailable() -> None:
    """Without waiting for the deadline."""
    with Client("127.0.0.1:1") as client, pytest.raises(api.Unavailable):
        client.models()


def test_calls_carry_metadata_and_a_trace_of_their_own(server: ScriptedServer) -> None:
    """The client's metadata goes with each call; traces differ unless a span is current."""
    server.script.on("ListModels", answer(pb.ListModelsResponse()))
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, False, TraceFlags(1)))
    with Client(server.target, metadata=[("authorization", "Bearer k")]) as client:
        client.models()
        client.models()
        with otel.use_span(span):
            client.models()
    calls = [call.metadata for call in server.script.of("ListModels")]
    assert all(call["authorization"] == "Bearer k" for call in calls)
    assert calls[0]["traceparent"] != calls[1]["traceparent"]
    assert calls[2]["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


def test_look_ups_always_have_a_deadline(server: ScriptedServer) -> None:
    """Also when the client was given none, so that nothing hangs; generation then has none."""
    server.script.on("Cancel", answer(pb.CancelResponse()))
    server.script.on("Generate", answer(pb.GenerateResponse()))
    with Client(server.target) as client:
        client.cancel(REQUEST_ID)
        client.generate("x", model="m")
    cancel, generate = server.script.seen
    assert cancel.time_left_s is not None
    # Fifteen seconds; gRPC writes spans of this length in tenths and rounds them up.
    assert 0 < cancel.time_left_s <= 15.1
    # gRPC says "no deadline" with a very large number.
    assert generate.time_left_s is None or generate.time_left_s > 1e6
    assert not generate.request.HasField("timeout")


def test_lists_fetch_all_pages(client: Client, script: Script) -> None:
    """Callers see one list."""
    pages = [
        pb.ListModelsResponse(models=[pb.Model(name="a")], next_page_token="p2"),
        pb.ListModelsResponse(models=[pb.Model(name="b")]),
    ]
    script.on("ListModels", *[answer(page) for page in pages])
    assert [model.name for model in client.models()] == ["a", "b"]
    assert script.seen[1].request.page_token == "p2"
    letters = [
        admin.ListDeadLettersResponse(
            dead_letters=[admin.DeadLetter(request_id="r2")], next_page_token="p2"
        ),
        admin.ListDeadLettersResponse(dead_letters=[admin.DeadLetter(request_id="r1")]),
    ]
    script.on("ListDeadLetters", *[answer(page) for page in letters])
    assert [letter.request_id for letter in client.admin.dead_letters()] == ["r2", "r1"]


def test_batches_yield_outcomes_and_stop_when_left(client: Client, script: Script) -> None:
    """Outcomes come as they finish, each request gets the limit, and leaving cancels the call."""
    outcome = pb.BatchGenerateResponse(index=1, response=pb.GenerateResponse(request_id="r"))
    script.on("BatchGenerate", hang_after([outcome]))  # type: ignore[list-item]
    requests = [api.build_request(text, model="m") for text in ("a", "b")]
    outcomes = client.batch(requests, timeout_s=5)
    assert next(outcomes).index == 1
    outcomes.close()
    assert script.ended["BatchGenerate"].wait(60)
    sent = script.of("BatchGenerate")[0].request.requests
    assert [request.timeout.seconds for request in sent] == [5, 5]
    assert not requests[0].HasField("timeout")


async def test_a_client_for_asyncio_of_the_same_connection(
    script: Script, server: ScriptedServer
) -> None:
    """It bears the same key and metadata, and calls the same server, as `headrace bench` does."""
    script.on("GetModel", answer(pb.GetModelResponse(model=pb.Model(name="a"))))
    with Client(server.target, api_key="hr-1", metadata=(("x-own", "1"),)) as client:
        async with client.for_asyncio() as twin:
            assert (await twin.model("a")).name == "a"
    (seen,) = script.of("GetModel")
    assert seen.metadata["authorization"] == "Bearer hr-1"
    assert seen.metadata["x-own"] == "1"


async def test_the_asyncio_client_has_every_call(script: Script, server: ScriptedServer) -> None:
    """Each reaches its RPC and unwraps the answer as the sync client does."""
    script.on("Cancel", answer(pb.CancelResponse(cancelling=True)))
    script.on("GetRequest", answer(pb.GetRequestResponse(request_id="r")))
    script.on("CountTokens", answer(pb.CountTokensResponse(num_tokens=3)))
    script.on("ListModels", answer(pb.ListModelsResponse(models=[pb.Model(name="a")])))
    script.on("GetModel", answer(pb.GetModelResponse(model=pb.Model(name="a"))))
    script.on("BatchGenerate", stream([pb.BatchGenerateResponse(index=1)]))  # type: ignore[list-item]
    worker = admin.Worker(worker_id="w")
    script.on("ListWorkers", answer(admin.ListWorkersResponse(workers=[worker])))
    script.on("DrainWorker", answer(admin.DrainWorkerResponse(worker=worker)))
    script.on("GetQueue", answer(admin.GetQueueResponse(queues=[admin.Queue(model="a")])))
    letter = admin.DeadLetter(request_id="r")
    script.on("ListDeadLetters", answer(admin.ListDeadLettersResponse(dead_letters=[letter])))
    script.on("GetDeadLetter", answer(admin.GetDeadLetterResponse(dead_letter=letter)))
    script.on("ReplayDeadLetter", answer(admin.ReplayDeadLetterResponse(request_id="r2")))
    async with AsyncClient(server.target) as client:
        assert (await client.cancel("r")).cancelling
        assert (await client.get_request("r")).request_id == "r"
        assert (await client.count_tokens("x", model="a")).num_tokens == 3
        assert [model.name for model in await client.models()] == ["a"]
        assert (await client.model("a")).name == "a"
        batch = client.batch([api.build_request("x", model="a")])
        assert [outcome.index async for outcome in batch] == [1]
        assert [found.worker_id for found in await client.admin.workers()] == ["w"]
        assert (await client.admin.drain("w", grace_s=1.5)).worker_id == "w"
        assert [queue.model for queue in await client.admin.queue("a")] == ["a"]
        assert [found.request_id async for found in client.admin.dead_letters()] == ["r"]
        assert (await client.admin.dead_letter("r")).request_id == "r"
        assert await client.admin.replay("r") == "r2"
    assert script.of("DrainWorker")[0].request.grace.ToMilliseconds() == 1500
    with pytest.raises(RuntimeError, match="closed"):
        await client.models()
