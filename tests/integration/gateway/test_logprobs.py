"""Log probabilities as clients get them: the same by every way to a result."""

import pytest

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import attached, drain, ids_of, max_tokens, request
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

OUTPUT = gen.OutputOptions(logprobs=True, top_logprobs=1, prompt_logprobs=True)


def wanted(**fields: object) -> pb.GenerateRequest:
    return request(output=OUTPUT, stop=max_tokens(6), **fields)


def of_deltas(events: list[pb.GenerateStreamResponse]) -> list[gen.Logprobs]:
    return [one for event in events for one in event.delta.logprobs]


def of_prompt(events: list[pb.GenerateStreamResponse]) -> list[gen.Logprobs]:
    (event,) = [event for event in events if event.WhichOneof("event") == "prompt"]
    return [*event.prompt.logprobs]


async def run(led: Led) -> None:
    await led.prompt()
    await led.tokens(1)
    await led.tokens(2)
    await led.checkpoint()
    await led.tokens(3)
    await led.finish()


async def test_every_way_to_a_result_has_the_same(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Stream, unary answer, Attach from any seq, GetRequest and the replay of a key."""
    message = wanted(idempotency_key="k")
    call = gateway.inference.GenerateStream(message)
    led = await scheduler.next()
    assert led.request.output.top_logprobs == 1
    await run(led)
    events = await drain(call)
    expected, prompt = of_deltas(events), of_prompt(events)
    assert [one.chosen.token_id for one in expected] == ids_of(events) == [*range(100, 106)]
    assert [one.HasField("chosen") for one in prompt] == [False, True, True]
    assert expected[2].chosen == gen.TokenLogprob(token_id=102, logprob=-25.5, token=b"t")
    assert expected[2].top[0].token == b"\xff"
    answer = await other_gateway.inference.Generate(message)
    assert [*answer.choices[0].logprobs] == expected
    assert [*answer.prompt_logprobs] == prompt
    found = await other_gateway.inference.GetRequest(pb.GetRequestRequest(request_id=str(led.id)))
    assert found.result == answer
    for from_seq in range(7):
        again = pb.AttachRequest(request_id=str(led.id), from_seq=from_seq)
        events = await attached(other_gateway.inference.Attach(again))
        assert of_deltas(events) == expected[from_seq:]
        assert of_prompt(events) == prompt


async def test_from_a_checkpoint(
    gateway: RunningGateway, other_gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Who attaches while it runs gets what the checkpoint holds and what is logged behind it."""
    call = gateway.inference.GenerateStream(wanted())
    led = await scheduler.next()
    await led.prompt()
    await led.tokens(2)
    await led.checkpoint()
    late = other_gateway.inference.Attach(pb.AttachRequest(request_id=str(led.id), from_seq=1))
    await led.tokens(2)
    await led.finish()
    events = await drain(call)
    assert of_deltas(await attached(late)) == of_deltas(events)[1:]


async def test_alternatives_ask_for_log_probabilities(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """`top_logprobs` alone is enough; without either there are none."""
    for output, has_them in ((gen.OutputOptions(top_logprobs=2), True), (None, False)):
        call = gateway.inference.GenerateStream(request(output=output))
        led = await scheduler.next()
        assert led.request.output.logprobs is has_them
        await led.prompt()
        await led.tokens(2)
        await led.finish()
        assert len(of_deltas(await drain(call))) == (2 if has_them else 0)


async def test_a_prompt_alone(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """No token, the prompt's usage, and an end by length."""
    call = gateway.inference.GenerateStream(
        request(output=gen.OutputOptions(prompt_logprobs=True), stop=max_tokens(0))
    )
    led = await scheduler.next()
    assert led.request.stop.max_tokens == 0
    await led.prompt()
    await led.finish()
    events = await drain(call)
    assert len(of_prompt(events)) == 3
    assert events[-1].usage == gen.Usage(prompt_tokens=3)
