"""The good path over real gRPC and a real Redis."""

import asyncio

import pytest

from common.domain import SamplingParams, StopConditions
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import (
    assert_gapless,
    drain,
    ids_of,
    kinds,
    max_tokens,
    request,
    text_of,
)
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words

pytestmark = pytest.mark.integration


async def test_a_stream_tells_everything_in_order(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Accepted, prompt, deltas without a gap, finish; cumulative usage in each event; status OK."""
    call = gateway.inference.GenerateStream(request(stop=max_tokens(4)))
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(1)
    await led.tokens(3)
    await led.finish()
    events = await drain(call)
    assert kinds(events)[:2] == ["accepted", "prompt"]
    assert kinds(events)[-1] == "finish"
    assert events[0].accepted.request_id == str(led.id)
    assert assert_gapless(events) == 4
    assert text_of(events) == "".join(words(0, 4))
    assert ids_of(events) == [100, 101, 102, 103]
    assert events[-1].finish.last
    assert events[-1].usage == gen.Usage(prompt_tokens=3, completion_tokens=4)
    assert led.request.prompt_token_ids == (1, 3, 4)
    trailing = dict(await call.trailing_metadata() or ())
    assert trailing["x-usage-completion-tokens"] == "4"


async def test_a_unary_answer_equals_the_stream(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Text, ids, usage, seed and timings of the whole answer."""
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(scheduler.serve())
        answer = await gateway.inference.Generate(
            request(stop=max_tokens(5), sampling=gen.SamplingParams(seed=7))
        )
        serving.cancel()
    assert answer.choices[0].text == "".join(words(0, 5))
    assert answer.choices[0].finish_reason == gen.FINISH_REASON_LENGTH
    assert answer.seed == 7
    assert answer.usage.completion_tokens == 5
    assert answer.timings.attempts == 1


async def test_text_held_back_for_a_stop_string_arrives_with_the_end(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """What the finish releases is part of the concatenated deltas."""
    call = gateway.inference.GenerateStream(request())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(1)
    await led.finish(text="tail")
    assert text_of(await drain(call)) == "w0 tail"


async def test_a_batch_answers_each_request(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """One bad request harms no other."""
    requests = [request(stop=max_tokens(n)) for n in (1, 2)]
    requests.insert(1, request(model="unknown"))
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(scheduler.serve())
        call = gateway.inference.BatchGenerate(pb.BatchGenerateRequest(requests=requests))
        outcomes = {outcome.index: outcome async for outcome in call}
        serving.cancel()
    assert sorted(outcomes) == [0, 1, 2]
    assert outcomes[0].response.usage.completion_tokens == 1
    assert outcomes[2].response.usage.completion_tokens == 2
    assert outcomes[1].error.reason == "MODEL_NOT_FOUND"


async def test_models_and_tokens(gateway: RunningGateway) -> None:
    """Models are listed from their cards; tokens are counted as generation would."""
    listed = await gateway.inference.ListModels(pb.ListModelsRequest())
    assert [model.name for model in listed.models] == ["tiny"]
    one = await gateway.inference.GetModel(pb.GetModelRequest(model="tiny"))
    assert one.model.context_tokens == 64
    counted = await gateway.inference.CountTokens(
        pb.CountTokensRequest(
            model="tiny", prompt=gen.Prompt(text="hello world"), return_token_ids=True
        )
    )
    assert list(counted.token_ids) == [1, 3, 4]
    chat = gen.ChatPrompt(messages=[gen.ChatMessage(role=gen.ROLE_USER, content="hello")])
    counted = await gateway.inference.CountTokens(
        pb.CountTokensRequest(model="tiny", prompt=gen.Prompt(chat=chat), return_token_ids=True)
    )
    assert list(counted.token_ids) == [5, 8, 3, 6, 8]


async def test_sampling_and_stops_reach_the_worker_as_they_were_sent(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Each field by its own name; what is unset is neutral."""
    sampling = gen.SamplingParams(
        seed=2**64 - 1,
        min_p=0.1,
        typical_p=0.9,
        repetition_penalty=1.25,
        presence_penalty=-2,
        frequency_penalty=0.5,
        logit_bias={3: -100.0, 259: 0.5},
    )
    stop = gen.StopConditions(max_tokens=9, min_tokens=4, stop=["ü", "b"], stop_token_ids=[5])
    call = gateway.inference.GenerateStream(request(sampling=sampling, stop=stop))
    led = await scheduler.next()
    assert led.request.sampling == SamplingParams(
        seed=2**64 - 1,
        min_p=0.1,
        typical_p=0.9,
        repetition_penalty=1.25,
        presence_penalty=-2,
        frequency_penalty=0.5,
        logit_bias={3: -100.0, 259: 0.5},
    )
    assert led.request.stop == StopConditions(9, 4, ("ü", "b"), (5,))
    await led.finish()
    await drain(call)
