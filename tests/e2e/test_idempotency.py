"""Idempotency keys over the whole path: two gateways, a scheduler, a worker, a count of what was dispatched (B26)."""

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.request import Request, urlopen

import grpc
import grpc.aio
import pytest

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1 import inference_service_pb2_grpc as rpc
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def request(text: str, **fields: object) -> pb.GenerateRequest:
    """A request with a key, of 40 tokens."""
    return pb.GenerateRequest(
        model="sim",
        prompt=gen.Prompt(text=text),
        stop=gen.StopConditions(max_tokens=40, ignore_eos=True),
        sampling=gen.SamplingParams(temperature=1.0),
        idempotency_key="e2e",
        **fields,
    )


def dispatched(stack: Stack) -> float:
    """Dispatches so far, of all schedulers."""
    name = "headrace_dispatched_total"
    return sum(stack.metric(scheduler, name) for scheduler in stack.schedulers)


async def test_one_execution_for_all() -> None:
    """Ten at once over two gateways, and more after the end, after a kill of one: one dispatch, the same bytes."""
    flags = [*SIMULATED, "--step-ms", "10"]
    with running_stack(gateways=2, worker_flags=flags) as stack:
        async with AsyncExitStack() as exits:
            channels = [
                await exits.enter_async_context(grpc.aio.insecure_channel(target))
                for target in stack.targets
            ]
            stubs = [rpc.InferenceServiceStub(channel) for channel in channels]
            message = request("the same for all")
            calls = [stubs[number % 2].Generate(message, timeout=60) for number in range(10)]
            answers = [answer.SerializeToString() for answer in await asyncio.gather(*calls)]
            answers += [(await stub.Generate(message)).SerializeToString() for stub in stubs]
            assert len(set(answers)) == 1
            assert pb.GenerateResponse.FromString(answers[0]).usage.completion_tokens == 40
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stubs[0].Generate(request("another body"))
            assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
            await asyncio.to_thread(stack.gateways[0].kill)
            assert (await stubs[1].Generate(message)).SerializeToString() == answers[0]
            assert dispatched(stack) == 1


async def test_replays_are_the_same_bytes() -> None:
    """By stream and over HTTP, whole and as events: whoever comes later, at whichever gateway, gets the stored result."""
    body = {"model": "sim", "prompt": "the same", "max_tokens": 40}
    with running_stack(
        gateways=2, worker_flags=SIMULATED, gateway_flags=["--http-port", "0"]
    ) as stack:
        for path, is_stream in (
            ("/v1/completions", False),
            ("/v1/completions", True),
            ("/api/generate", True),
        ):
            given = body | {"stream": is_stream}
            key = f"{path} {is_stream}"
            (first, *later) = [
                await asyncio.to_thread(post, gateway.endpoints["http"] + path, given, key)
                for gateway in [*stack.gateways, *stack.gateways]
            ]
            assert len(set(later)) == 1
            assert is_stream or later[0] == first, "a stream that is live comes in other pieces"
        async with AsyncExitStack() as exits:
            replays, texts = [], set()
            for target in [*stack.targets, *stack.targets]:
                channel = await exits.enter_async_context(grpc.aio.insecure_channel(target))
                call = rpc.InferenceServiceStub(channel).GenerateStream(request("streamed"))
                events = [event async for event in call]
                texts.add("".join(event.delta.text for event in events))
                replays.append(b"".join(event.SerializeToString() for event in events))
            assert len(set(replays[1:])) == len(texts) == 1
        assert dispatched(stack) == 4


def post(url: str, body: dict[str, object], key: str) -> bytes:
    """The answer's body."""
    headers = {"content-type": "application/json", "idempotency-key": key}
    sent = Request(url, json.dumps(body).encode(), headers)
    with urlopen(sent, timeout=60) as answer:
        got: bytes = answer.read()
    return got


async def test_a_gateway_dies_and_the_retry_goes_on() -> None:
    """Killed while the request runs: the same call at the other gateway gets its result, and nothing runs twice."""
    flags = [*SIMULATED, "--step-ms", "200"]  # so that it still runs when its gateway is killed
    with running_stack(gateways=2, worker_flags=flags) as stack:
        async with AsyncExitStack() as exits:
            first, second = [
                rpc.InferenceServiceStub(
                    await exits.enter_async_context(grpc.aio.insecure_channel(target))
                )
                for target in stack.targets
            ]
            message = request("goes on")
            lost = first.Generate(message)
            await asyncio.to_thread(eventually, lambda: dispatched(stack) == 1)
            await asyncio.to_thread(stack.gateways[0].kill)
            with pytest.raises(grpc.aio.AioRpcError):
                await lost
            answer = await second.Generate(message, timeout=60)
            assert answer.usage.completion_tokens == 40
            assert answer.timings.attempts == 1
            assert dispatched(stack) == 1
