"""Messages that would take long to read: refused by name before they are parsed, over gRPC and HTTP."""

import asyncio
import json
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gateway import held
from gateway.http.json_size import MAX_VALUES
from gateway.message_size import MAX_FIELDS, MAX_NUMBERS
from gateway.tokenize import MAX_LONG_CHARS
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.raw_http import connected, post, read_answer
from tests.integration.gateway.requests import drain, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import error_info, retry_s, violations
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

GENERATE = "/headrace.v1.InferenceService/Generate"
COUNT = "/headrace.v1.InferenceService/CountTokens"
BATCH = "/headrace.v1.InferenceService/BatchGenerate"
TENANT = "/headrace.v1.AdminService/SetTenant"


async def refusal(gateway: RunningGateway, method: str, data: bytes) -> grpc.aio.AioRpcError:
    """How bytes are refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.channel.unary_unary(method)(data)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return caught.value


def longest_list() -> bytes:
    """Four million token ids in four megabytes."""
    asked = pb.GenerateRequest(model="tiny", idempotency_key="k")
    asked.prompt.token_ids.ids.extend([3] * 4_000_000)
    return asked.SerializeToString()


async def test_grpc_refuses_them_by_name(gateway: RunningGateway) -> None:
    """The field and the limit; with an idempotency key, in a batch, and to count."""
    ids = await refusal(gateway, GENERATE, longest_list())
    assert violations(ids) == {
        "prompt.token_ids.ids": f"must hold at most {MAX_NUMBERS} ids, holds 4000000"
    }
    labels = request(idempotency_key="k")
    for number in range(MAX_FIELDS):
        labels.labels[str(number)] = "x"
    (text,) = violations(await refusal(gateway, GENERATE, labels.SerializeToString())).values()
    assert str(MAX_FIELDS) in text
    batch = await refusal(gateway, BATCH, b"\x0a\x00" * 2_000_000)
    assert violations(batch).keys() == {"requests"}
    count = pb.CountTokensRequest(model="tiny")
    count.prompt.text = "hello " * 600_000
    (text,) = violations(await refusal(gateway, COUNT, count.SerializeToString())).values()
    assert f"at most {MAX_LONG_CHARS} characters" in text


async def test_what_is_large_and_broken_is_refused_as_what_is_small(
    gateway: RunningGateway,
) -> None:
    """By inference and administration, and neither is a failure of ours."""
    for method in (GENERATE, TENANT):
        for data in (b"\x0a\xff", b"\x0a\xff" * 100_000, longest_list()[:-1]):
            error = await refusal(gateway, method, data)
            assert violations(error).keys() <= {"request", "prompt.token_ids.ids"}


async def test_a_large_request_that_is_none_too_large_is_served(
    gateway: RunningGateway, served: object
) -> None:
    """Megabytes of which the last tokens count."""
    asked = request()
    asked.prompt.text = "hello " * 30_000
    asked.prompt.truncate_to_tokens = 4
    assert asked.ByteSize() > 64 * 1024
    assert (await gateway.inference.Generate(asked)).choices
    body = {"model": "tiny", "prompt": "hello " * 100_000}
    counted = await post(gateway.http, "/tokenize", body)
    assert counted.json["count"] == len(counted.json["tokens"]) == 100_001


async def test_http_refuses_them_by_name(gateway: RunningGateway) -> None:
    """Values, members, parts, and numbers without end."""
    ones = b",".join([b"1"] * (MAX_VALUES + 1))
    answer = await post(
        gateway.http, "/v1/completions", b'{"model":"tiny","prompt":[' + ones + b"]}"
    )
    assert (answer.status, answer.fields) == (400, {"body"})
    assert str(MAX_VALUES) in answer.json["error"]["message"]
    digits = await post(gateway.http, "/v1/completions", b'{"seed":' + b"9" * 4000 + b"}")
    assert "at most 1000 digits" in digits.json["error"]["message"]
    part = {"type": "text", "text": "x"}
    message = {"role": "user", "content": [part] * 60}
    parts = {"model": "tiny", "messages": [message] * 100}
    answer = await post(gateway.http, "/v1/chat/completions", parts)
    assert "messages: must hold at most 4096 parts" in answer.json["error"]["message"]


async def test_a_body_in_crumbs_is_not_read(gateway: RunningGateway, served: object) -> None:
    """Thousands of chunks of one byte cost as much as thousands of requests; a body in ordinary chunks is read."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    body = json.dumps({"model": "tiny", "prompt": "hello", "user": "x" * 60}).encode()
    for size, times, status in ((7, 1, 200), (1, 10_000, 400)):
        whole = body + b" " * times
        chunks = (whole[at : at + size] for at in range(0, len(whole), size))
        sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        async with connected(gateway.http) as (reader, writer):
            writer.write(head + sent + b"0\r\n\r\n")
            answer = await read_answer(reader)
        assert answer.status == status, answer
        if status == 400:
            assert "too many small chunks" in answer.json["error"]["message"]


async def test_those_who_are_not_known_are_refused_before_their_message_is_read(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """Where keys are required nobody parses for strangers."""
    async with running_gateway(redis_server.url, tmp_path, require_keys=True) as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.channel.unary_unary(GENERATE)(longest_list())
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        silent = gateway.channel.stream_unary(GENERATE)()
        async with asyncio.timeout(scaled(20)):
            assert await silent.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_large_messages_of_all_calls_together_have_a_bound(
    redis_server: RedisServer,
    scheduler: ScriptedScheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is held while its answer is awaited: others come back later, small ones need not, and its end makes room."""
    monkeypatch.setattr(held, "_LONGEST_MESSAGES", 0)
    monkeypatch.setattr(held, "_LEAST_BYTES", 250_000)
    large = request()
    large.prompt.text = "hello " * 30_000
    large.prompt.truncate_to_tokens = 4
    count = pb.CountTokensRequest(model="tiny")
    count.prompt.text = "hello " * 15_000
    body = {"model": "tiny", "prompt": count.prompt.text}
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        first = gateway.inference.GenerateStream(large)
        led = await scheduler.next()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.inference.CountTokens(count)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_info(caught.value).reason == "MESSAGES_FULL"
        assert retry_s(caught.value) == 1.0
        refused = await post(gateway.http, "/tokenize", body)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        small = await post(gateway.http, "/tokenize", {"model": "tiny", "prompt": "hello"})
        assert small.status == 200
        await led.prompt()
        await led.finish()
        await drain(first)
        async with asyncio.timeout(scaled(60)):
            while (await post(gateway.http, "/tokenize", body)).status != 200:  # noqa: ASYNC110 - a client that is told to come back
                await asyncio.sleep(0.01)
            await gateway.inference.CountTokens(count)


async def test_others_are_answered_while_one_is_counted(gateway: RunningGateway) -> None:
    """A flood of what is refused leaves the event loop to everybody: probes are answered in between."""
    flood = [
        asyncio.create_task(refusal(gateway, BATCH, b"\x0a\x00" * 1_000_000)) for _ in range(8)
    ]
    answered = 0
    while not all(one.done() for one in flood):
        answer = await post(gateway.http, "/tokenize", {"model": "tiny", "prompt": "hello"})
        assert answer.status == 200
        answered += 1
    await asyncio.gather(*flood)
    assert answered > 1
