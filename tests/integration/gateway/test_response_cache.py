"""The response cache: who gets an earlier answer, who does not, and how it shows."""

import asyncio

import grpc
import pytest

from common import keys
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.raw_http import post
from tests.integration.gateway.requests import drain, kinds, max_tokens, request, text_of
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import bad_fields
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

SEEDED = gen.SamplingParams(seed=7)
GREEDY = gen.SamplingParams(temperature=0)


def cacheable(**fields: object) -> pb.GenerateRequest:
    """A request that may be answered from the cache."""
    fields.setdefault("sampling", SEEDED)
    fields.setdefault("stop", max_tokens(3))
    return request(use_response_cache=True, **fields)


async def stored(scheduler: ScriptedScheduler, count: int) -> None:
    """Until so many answers are noted."""

    pattern = keys.response_cache("*", "*")
    async with asyncio.timeout(scaled(60)):
        while len(await scheduler.node.call(lambda c: c.keys(pattern), bound_s=10)) != count:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_an_equal_request_gets_the_same_answer(
    gateway: RunningGateway, other_gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """Whole, as a stream and over HTTP, at any gateway: one execution, and the usage says so."""
    first = await gateway.inference.Generate(cacheable(labels={"a": "b"}))
    assert not first.usage.from_response_cache
    await stored(served, 1)
    call = other_gateway.inference.Generate(cacheable(priority=gen.PRIORITY_HIGH))
    again = await call
    assert again.usage.from_response_cache
    assert dict(await call.trailing_metadata())["x-response-cache"] == "hit"
    again.usage.from_response_cache = False
    assert again == first
    events = await drain(gateway.inference.GenerateStream(cacheable()))
    assert kinds(events) == ["accepted", "prompt", "delta", "finish"]
    assert all(event.usage.from_response_cache for event in events[1:])
    assert text_of(events) == first.choices[0].text
    body = {"model": "tiny", "prompt": "hello world", "max_tokens": 3, "seed": 7}
    answer = await post(gateway.http, "/v1/completions", {**body, "use_response_cache": True})
    assert answer.headers.get("x-response-cache") is None, "no token ids: another answer"
    await stored(served, 2)
    answer = await post(gateway.http, "/v1/completions", {**body, "use_response_cache": True})
    assert answer.headers["x-response-cache"] == "hit"
    assert answer.json["usage"]["from_response_cache"] is True
    assert len(served.served) == 2
    scrape = gateway.runtime.metrics.scrape()[0].decode()
    assert 'response_cache_lookups_total{model_name="tiny",result="hit"}' in scrape


async def test_whoever_differs_gets_an_answer_of_its_own(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """Another tenant, prompt, parameter or salt, and who does not ask for the cache."""
    await gateway.inference.Generate(cacheable())
    await stored(served, 1)
    others = [
        cacheable(text="world hello"),
        cacheable(sampling=gen.SamplingParams(seed=8)),
        cacheable(sampling=gen.SamplingParams(seed=7, top_k=2)),
        cacheable(stop=max_tokens(4)),
        cacheable(cache_salt="s"),
        request(sampling=SEEDED, stop=max_tokens(3)),
    ]
    answers = [await gateway.inference.Generate(one) for one in others]
    blue = (("x-tenant-id", "blue"),)
    answers.append(await gateway.inference.Generate(cacheable(), metadata=blue))
    assert not any(answer.usage.from_response_cache for answer in answers)
    assert len(served.served) == 1 + len(answers)


async def test_greedy_answers_need_no_seed(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """The seed that was drawn for the first is returned with the second; it changes nothing."""
    first = await gateway.inference.Generate(cacheable(sampling=GREEDY))
    await stored(served, 1)
    again = await gateway.inference.Generate(cacheable(sampling=GREEDY))
    assert again.usage.from_response_cache
    assert again.seed == first.seed


async def test_a_forgotten_answer_is_computed_again(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """The cache has no copy: when the record goes, the answer has gone."""
    first = await gateway.inference.Generate(cacheable())
    await stored(served, 1)
    (led,) = served.served
    await served.node.call(lambda client: client.delete(keys.record(led.id)), bound_s=10)
    again = await gateway.inference.Generate(cacheable())
    assert not again.usage.from_response_cache
    assert again.request_id != first.request_id


@pytest.mark.parametrize(
    "asked",
    [cacheable(sampling=gen.SamplingParams(temperature=1)), cacheable(idempotency_key="k")],
    ids=["random", "with a key"],
)
async def test_what_cannot_be_cached_is_refused(
    gateway: RunningGateway, asked: pb.GenerateRequest
) -> None:
    """The flag is refused, and not ignored, where the answer is left to chance or a key replays it."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.Generate(asked)
    assert bad_fields(caught.value) == {"use_response_cache"}
