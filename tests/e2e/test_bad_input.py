"""Bad input is refused by name, unary and streamed, and nobody beside it notices (B01, B02, B06, B07, B09, B12)."""

import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from headrace.client import AsyncClient, InvalidRequest, build_request
from headrace.v1 import inference_service_pb2 as pb
from tests.bench.refusals import STOPS
from tests.support.outcomes import collect
from tests.support.stack import Stack, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BAD = [
    ("prompt", "", {}),
    ("prompt", "   \n\t", {}),
    ("prompt", [], {}),
    ("prompt", [2**31], {}),
    ("prompt", "word " * 9000, {}),
    ("sampling.logit_bias", "x", {"logit_bias": {2**31: 1.0}}),
    ("sampling.logit_bias", "x", {"logit_bias": {1: float("nan")}}),
    ("stop.stop_token_ids", "x", {"stop_token_ids": [2**31]}),
    ("sampling.temperature", "x", {"temperature": float("inf")}),
    ("sampling.top_p", "x", {"top_p": 0.0}),
    ("sampling.n", "x", {"n": 17}),
    ("stop.max_tokens", "x", {"max_tokens": 0}),
    ("stop.stop", "x", {"stop": ["", "y"]}),
    ("stop.stop", "x", {"stop": [str(n) for n in range(17)]}),
    ("stop.stop", "x", {"stop": ["y" * 1_000_000]}),
]


@contextlib.asynccontextmanager
async def beside_witnesses() -> AsyncIterator[tuple[Stack, AsyncClient]]:
    flags = ["--engine", "simulated", "--served-model-name", "sim", "--step-ms", "4"]
    with running_stack(worker_flags=flags) as stack:
        async with (
            AsyncClient(stack.targets) as client,
            witnessed(stack, client, count=10, tokens=200),
        ):
            yield stack, client


async def test_bad_fields_harm_nobody():
    """Each is refused with its field, and ten streams beside it end as they would have."""
    async with beside_witnesses() as (_, client):
        for field, prompt, options in BAD:
            asked = {"max_tokens": 4, "model": "sim", **options}
            with pytest.raises(InvalidRequest) as unary:
                await client.generate(prompt, **asked)
            streamed = (await collect(client, prompt, **asked)).error
            for error in (unary.value, streamed):
                assert isinstance(error, InvalidRequest)
                fields = [found.field for found in error.field_violations]
                assert any(name.startswith(field) for name in fields), (field, fields)


async def test_bytes_that_are_no_text_harm_nobody():
    """Text that is not UTF-8 on the wire ends that call with a status, without a trace of our code."""
    message = build_request("abc", model="sim", max_tokens=4).SerializeToString()
    broken = message.replace(b"abc", b"a\xff\xfe")
    assert broken != message
    async with (
        beside_witnesses() as (stack, _),
        grpc.aio.insecure_channel(stack.targets[0]) as raw,
    ):
        call = raw.unary_unary(
            "/headrace.v1.InferenceService/Generate",
            request_serializer=bytes,
            response_deserializer=pb.GenerateResponse.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(broken)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "request: is not a valid message"


async def test_lists_of_stop_strings_harm_nobody():
    """Ten thousand in 3.9 MB, again and again: refused by name, and ten streams beside them end as they would have (B07).

    How far apart their tokens are meanwhile is what ``python -m tests.bench.refusals`` measures.
    """
    async with beside_witnesses() as (_, client):
        for _ in range(10):
            with pytest.raises(InvalidRequest) as caught:
                await client.generate("x", model="sim", max_tokens=4, stop=STOPS)
            assert [one.field for one in caught.value.field_violations] == ["stop.stop"]
