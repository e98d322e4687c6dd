"""Compression: what clients send, what they are sent, and that a message counts by what it unfolds to."""

import gzip
import json

import grpc.aio
import pytest

from common.grpc_options import COMPRESSED_FROM_BYTES
from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1 import inference_service_pb2_grpc as inference_rpc
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.raw_http import post
from tests.integration.gateway.requests import drain, max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.tcp_proxy import running_proxy

pytestmark = pytest.mark.integration

NUM_WORDS = COMPRESSED_FROM_BYTES + 100
"""Each a token of one byte."""


async def test_compressed_messages(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """They are taken, and counted by what they unfold to: a bomb is refused, and the gateway serves on."""
    async with AsyncClient(gateway.address, compression=grpc.Compression.Gzip) as client:
        counted = await client.count_tokens("hello " * 20, model="tiny")
        assert counted.num_tokens == 21
    by_gzip = grpc.Compression.Gzip
    async with grpc.aio.insecure_channel(gateway.address, compression=by_gzip) as channel:
        stub = inference_rpc.InferenceServiceStub(channel)
        call = stub.GenerateStream(request("hello " * 20, stop=max_tokens(1)))
        led = await scheduler.next()
        assert len(led.request.prompt_token_ids) == 21
        await led.finish()
        await drain(call)
        bomb = stub.Generate(request("a" * 64_000_000))
        assert await bomb.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        models = await stub.ListModels(pb.ListModelsRequest())
        assert [one.name for one in models.models] == ["tiny"]


@pytest.mark.parametrize("echo", [(), (("x-request-id", "mine"),)])
async def test_large_answers_over_grpc(gateway: RunningGateway, echo) -> None:
    """They take a fraction of their size on the wire, also where the first metadata went ahead of them."""
    prompt = gen.Prompt(text="hello " * NUM_WORDS)
    asked = pb.CountTokensRequest(model="tiny", prompt=prompt, return_token_ids=True)
    with running_proxy(int(gateway.address.rpartition(":")[2])) as proxy:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            stub = inference_rpc.InferenceServiceStub(channel)
            await stub.ListModels(pb.ListModelsRequest(), metadata=echo)
            before = proxy.reply_bytes
            answer = await stub.CountTokens(asked, metadata=echo)
            assert answer.ByteSize() > COMPRESSED_FROM_BYTES
            assert proxy.reply_bytes - before < COMPRESSED_FROM_BYTES / 4


async def test_large_answers_over_http(gateway: RunningGateway) -> None:
    """By gzip for who takes it; small ones, and everybody else's, as they are."""
    large = {"model": "tiny", "prompt": "hello " * NUM_WORDS}
    plain = await post(gateway.http, "/tokenize", large)
    packed = await post(gateway.http, "/tokenize", large, "accept-encoding: gzip, br")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in packed.headers["vary"].lower()
    assert len(packed.body) < len(plain.body) / 4
    assert json.loads(gzip.decompress(packed.body)) == plain.json
    small = await post(
        gateway.http, "/tokenize", {**large, "prompt": "hello"}, "accept-encoding: gzip"
    )
    assert "content-encoding" not in small.headers
