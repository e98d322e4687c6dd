"""What is refused, over the wire: cases of bad input, full queues, absent workers and models."""

import math

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from common.domain import Priority
from common.wire.snapshot import ClassStatus
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import drain, max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import bad_fields, details_of, error_info, retry_s

pytestmark = pytest.mark.integration

UINT32_MAX = 2**32 - 1


async def refusal(
    gateway: RunningGateway, message: pb.GenerateRequest, metadata: tuple = ()
) -> grpc.aio.AioRpcError:
    """The status of a refused request, the same for a stream and a unary call."""
    with pytest.raises(grpc.aio.AioRpcError) as streamed:
        await drain(gateway.inference.GenerateStream(message, metadata=metadata))
    with pytest.raises(grpc.aio.AioRpcError) as unary:
        await gateway.inference.Generate(message, metadata=metadata)
    assert streamed.value.code() is unary.value.code()
    return unary.value


def sampling(**fields: float) -> pb.GenerateRequest:
    """A request with sampling parameters."""
    return request(sampling=gen.SamplingParams(**fields))  # type: ignore[arg-type]


INVALID = {
    "empty text": (request(""), {"prompt.text"}),
    "white space": (request("  \n"), {"prompt.text"}),
    "no ids": (request(prompt=gen.Prompt(token_ids=gen.TokenIds())), {"prompt.token_ids"}),
    "no prompt": (request(prompt=gen.Prompt()), {"prompt"}),
    "no messages": (
        request(prompt=gen.Prompt(chat=gen.ChatPrompt())),
        {"prompt.chat.messages"},
    ),
    "ids outside": (
        request(prompt=gen.Prompt(token_ids=gen.TokenIds(ids=[3, 260, UINT32_MAX]))),
        {"prompt.token_ids.ids[1]", "prompt.token_ids.ids[2]"},
    ),
    "bias outside": (
        request(sampling=gen.SamplingParams(logit_bias={260: 1, UINT32_MAX: 1, 3: math.nan})),
        {f"sampling.logit_bias[{token}]" for token in (260, UINT32_MAX, 3)},
    ),
    "stop ids outside": (
        request(stop=gen.StopConditions(stop_token_ids=[1, 260])),
        {"stop.stop_token_ids[1]"},
    ),
    "not numbers": (
        sampling(temperature=math.nan, top_p=math.inf, min_p=math.nan, typical_p=-math.inf),
        {f"sampling.{name}" for name in ("temperature", "top_p", "min_p", "typical_p")},
    ),
    "out of range": (
        sampling(
            temperature=-0.1, top_p=0, top_k=0, n=0, repetition_penalty=0, presence_penalty=3
        ),
        {
            f"sampling.{name}"
            for name in (
                *("temperature", "top_p", "top_k", "n"),
                *("repetition_penalty", "presence_penalty"),
            )
        },
    ),
    "too much": (
        sampling(temperature=1e9, top_p=1.0001, n=1000, frequency_penalty=math.nan),
        {f"sampling.{name}" for name in ("temperature", "top_p", "n", "frequency_penalty")},
    ),
    "zero tokens": (request(stop=max_tokens(0)), {"stop.max_tokens"}),
    "stop strings": (
        request(stop=gen.StopConditions(stop=["ok", "", "x" * 300])),
        {"stop.stop[1]", "stop.stop[2]"},
    ),
    "ten thousand stops": (
        request(stop=gen.StopConditions(stop=[""] * 10_000)),
        {"stop.stop"},
    ),
    "a megabyte of stop": (
        request(stop=gen.StopConditions(stop=["x" * 1_000_000, "ü" * 129])),
        {"stop.stop[0]", "stop.stop[1]"},
    ),
    "1025 biases": (
        request(sampling=gen.SamplingParams(logit_bias=dict.fromkeys(range(1025), 1.0))),
        {"sampling.logit_bias"},
    ),
    "bias too strong": (
        request(sampling=gen.SamplingParams(logit_bias={3: 1e308, 4: -math.inf, 5: 100.0})),
        {"sampling.logit_bias[3]", "sampling.logit_bias[4]"},
    ),
    "min above max": (
        request(stop=gen.StopConditions(max_tokens=3, min_tokens=4)),
        {"stop.min_tokens"},
    ),
    "21 alternatives": (
        request(output=gen.OutputOptions(top_logprobs=21)),
        {"output.top_logprobs"},
    ),
    "17 stops": (request(stop=gen.StopConditions(stop=["x"] * 17)), {"stop.stop"}),
    "timeout": (request(timeout=Duration(seconds=-1)), {"timeout"}),
    "timeout 0": (request(timeout=Duration()), {"timeout"}),
    "model": (request(model="no such name!", priority=77), {"model", "priority"}),
    "labels": (request(labels={"x" * 65: "v"}), {f"labels[{'x' * 64}]"}),
    "length beside fields": (
        request(
            prompt=gen.Prompt(token_ids=gen.TokenIds(ids=[3] * 9000)),
            sampling=gen.SamplingParams(temperature=-1, n=1000),
        ),
        {"prompt", "sampling.temperature", "sampling.n"},
    ),
    "room beside fields": (
        request(stop=max_tokens(60), sampling=gen.SamplingParams(top_p=2)),
        {"stop.max_tokens", "sampling.top_p"},
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_bad_fields_are_named_all_at_once(gateway: RunningGateway, case: str) -> None:
    """INVALID_ARGUMENT with each bad field and no other (B06, B07, B12)."""
    message, fields = INVALID[case]
    error = await refusal(gateway, message)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad_fields(error) == fields


@pytest.mark.parametrize(
    ("prompt_tokens", "max_new", "field"),
    [(65, None, "prompt"), (64, None, "prompt"), (50, None, "prompt"), (40, 9, "stop.max_tokens")],
)
async def test_lengths_that_cannot_fit(
    gateway: RunningGateway, prompt_tokens: int, max_new: int | None, field: str
) -> None:
    """Beyond context or KV memory nothing is queued; the limits are in the metadata."""
    prompt = gen.Prompt(token_ids=gen.TokenIds(ids=[3] * prompt_tokens))
    stop = gen.StopConditions(max_tokens=max_new) if max_new else gen.StopConditions()
    error = await refusal(gateway, request(prompt=prompt, stop=stop))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad_fields(error) == {field}
    info = error_info(error)
    assert info.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert info.metadata["context_tokens"] == "64"
    assert info.metadata["kv_capacity_tokens"] == "48"


async def test_the_longest_that_fits_is_accepted(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """One token of room is enough, and unset max_tokens takes just that."""
    prompt = gen.Prompt(token_ids=gen.TokenIds(ids=[3] * 47))
    call = gateway.inference.GenerateStream(request(prompt=prompt))
    led = await scheduler.next()
    assert led.request.stop.max_tokens == 1
    await led.finish()
    await drain(call)


async def test_what_is_not_implemented_is_named(gateway: RunningGateway) -> None:
    """Valid fields that this version lacks: all of them, by path; neutral values pass."""
    error = await refusal(gateway, request(adapter="a"))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error_info(error).metadata["fields"] == "adapter"


async def test_an_unknown_model_is_not_found(gateway: RunningGateway) -> None:
    """NOT_FOUND with the resource."""
    error = await refusal(gateway, request(model="nobody/knows"))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert details_of(error)["ResourceInfo"].resource_name == "nobody/knows"


async def test_no_worker_and_no_patience(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """hold=false is refused while no worker is connected, with advice when to come back."""
    error = await refusal(gateway, request(hold=False))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error_info(error).reason == "NO_WORKER"
    assert retry_s(error) > 0
    await scheduler.snapshot(num_workers=1)
    call = gateway.inference.GenerateStream(request(hold=False))
    await (await scheduler.next()).finish()
    await drain(call)


async def test_a_full_queue_says_when_to_come_back(
    gateway: RunningGateway, scheduler: ScriptedScheduler, tmp_path, redis_server
) -> None:
    """RESOURCE_EXHAUSTED at the bound; the delay follows from the drain rate."""
    async with running_gateway(redis_server.url, tmp_path, queue_max_requests=(1,)) as small:
        call = small.inference.GenerateStream(request())
        await anext(aiter(call))
        classes = [ClassStatus(Priority.NORMAL, 1, 3, 0)]
        await scheduler.snapshot(drain_rate=0.25, classes=classes)
        await small.admin.GetQueue(admin.GetQueueRequest(model="tiny"))
        error = await refusal(small, request())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_info(error).reason == "QUEUE_FULL"
        assert retry_s(error) == 4.0
        call.cancel()


@pytest.mark.parametrize("size", [7_000, 9_000])
async def test_metadata_near_the_limit(gateway: RunningGateway, size: int) -> None:
    """Large metadata, baggage and a malformed traceparent are no error of ours; the echo is cut (B10)."""
    metadata = (
        ("x-filler", "f" * size),
        ("baggage", "key=" + "b" * 8_000),
        ("traceparent", "00-nonsense"),
        ("x-request-id", "i" * 300),
    )
    call = gateway.inference.ListModels(pb.ListModelsRequest(), metadata=metadata)
    assert (await call).models
    assert dict(await call.initial_metadata() or ())["x-request-id"] == "i" * 256


async def test_metadata_has_one_limit(gateway: RunningGateway) -> None:
    """20 KiB: what is below is served each time; beyond, each status names the limit, and the next call is served."""

    async def ask(size: int) -> pb.ListModelsResponse:
        metadata = (("x-filler", "f" * size),)
        return await gateway.inference.ListModels(pb.ListModelsRequest(), metadata=metadata)

    # Often: between a soft and a hard limit gRPC refuses at random.
    for _ in range(20):
        assert (await ask(17_000)).models
        assert (await ask(19_500)).models
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(20_600)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "metadata size exceeds" in (caught.value.details() or "")
    assert (await gateway.inference.ListModels(pb.ListModelsRequest())).models


async def test_a_thousand_bad_fields_fit_into_a_trailer(gateway: RunningGateway) -> None:
    """The details are cut; the code stays what it is (B10)."""
    ids = gen.TokenIds(ids=[300] * 60)
    bias = {1000 + n: 500.0 for n in range(1000)}
    error = await refusal(
        gateway,
        request(prompt=gen.Prompt(token_ids=ids), sampling=gen.SamplingParams(logit_bias=bias)),
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad_fields(error)


async def test_bytes_that_are_no_message(gateway: RunningGateway) -> None:
    """Invalid UTF-8 in a string is the caller's error, told without our inside (B09)."""
    good = request("hello").SerializeToString()
    bad = good.replace(b"hello", b"hel\xed\xa0")
    call = gateway.channel.unary_unary("/headrace.v1.InferenceService/Generate")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(bad)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in (caught.value.details() or "")


async def test_odd_text_is_tokenized(gateway: RunningGateway) -> None:
    """NULs, noncharacters and combining marks are text like any other (B09)."""
    for text in ("a\x00b", "\uffff", "e" + "\u0301" * 1000, "\u200f\u202e"):
        counted = await gateway.inference.CountTokens(
            pb.CountTokensRequest(model="tiny", prompt=gen.Prompt(text=text))
        )
        assert counted.num_tokens >= 1


async def test_every_method_of_the_contract_is_there(gateway: RunningGateway) -> None:
    """Whatever it says of an empty message, it is not that nobody knows it."""
    for contract in (pb.DESCRIPTOR, admin.DESCRIPTOR):
        for service in contract.services_by_name.values():
            for name in service.methods_by_name:
                call = gateway.channel.unary_stream(f"/{service.full_name}/{name}")(b"")
                code = grpc.StatusCode.OK
                try:
                    await anext(aiter(call), None)
                except grpc.aio.AioRpcError as error:
                    code = error.code()
                call.cancel()
                assert code is not grpc.StatusCode.UNIMPLEMENTED, name
