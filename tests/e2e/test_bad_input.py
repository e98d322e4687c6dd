"""Bad input is refused by name, unary and streamed, and nobody beside it notices (B01, B02, B06, B07, B09, B12)."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from headrace.client import AsyncClient, InvalidRequest, build_request
from headrace.v1 import inference_service_pb2 as pb
from tests.support.outcomes import collect
from tests.support.stack import Stack, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

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


async def test_lists_of_stop_strings_do_not_slow_the_streams_beside_them():
    """Ten thousand in 3.9 MB, again and again: refused, and 99 % of the gaps between tokens stay as they were (B07)."""
    stops = [f"{n:05}" + "x" * 380 for n in range(10_000)]
    flags = ["--engine", "simulated", "--served-model-name", "sim", "--step-ms", "30"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client, AsyncClient(stack.targets) as other:
            calm = await gaps_s(client)
            listening = asyncio.create_task(gaps_s(client))
            num_refused = 0
            while not listening.done():
                with pytest.raises(InvalidRequest):
                    await other.generate("x", model="sim", max_tokens=4, stop=stops)
                num_refused += 1
            disturbed = await listening
    assert num_refused > 5
    p99_calm, p99 = (statistics.quantiles(gaps, n=100)[98] for gaps in (calm, disturbed))
    # On its two cores the test's own messages take some of the time.
    assert p99 <= 3 * p99_calm + 0.1, (p99, p99_calm)


async def gaps_s(client: AsyncClient) -> list[float]:
    """Times between tokens of ten streams."""
    found: list[float] = []

    def listener() -> Callable[[object], None]:
        last_s = 0.0

        def on_event(event: Any) -> None:
            nonlocal last_s
            if event.count:
                now_s = time.perf_counter()
                if last_s:
                    found.append(now_s - last_s)
                last_s = now_s

        return on_event

    options: dict[str, Any] = {"model": "sim", "max_tokens": 60, "ignore_eos": True}
    await asyncio.gather(
        *(collect(client, f"stream {n}", on_event=listener(), **options) for n in range(10))
    )
    return found
