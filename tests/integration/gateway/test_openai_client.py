"""The API as the real clients of it use it: OpenAI's, in all its ways, and Hugging Face's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import cast

import openai
import pytest
from huggingface_hub import InferenceClient
from openai import AsyncOpenAI, AsyncStream, OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from common.domain import FinishReason
from common.records import Failure
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.scripted_scheduler import Led, ScriptedScheduler, words
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, pointed at the gateway and changed in nothing else."""
    async with AsyncOpenAI(base_url=f"{gateway.http}/v1", api_key="any") as client:
        yield client


async def begun_stream(
    client: AsyncOpenAI, scheduler: ScriptedScheduler
) -> tuple[AsyncStream[ChatCompletionChunk], Led]:
    """A stream whose prompt a worker has taken up, and the request behind it."""
    stream = await client.chat.completions.create(
        model="tiny",
        messages=HELLO,  # type: ignore[arg-type]
        stream=True,
    )
    led = await scheduler.next()
    await led.prompt()
    return stream, led


async def test_a_chat_completion(client: AsyncOpenAI, served: ScriptedScheduler) -> None:
    """Text, reason, usage, model and id; developer is the system's other name; parts of text are joined."""
    answer = await client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "developer", "content": "world"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        ],
        max_completion_tokens=3,
        seed=7,
        user="somebody",
        metadata={"team": "blue"},
        store=False,
        service_tier="auto",
    )
    assert answer.object == "chat.completion"
    assert answer.model == "tiny"
    assert answer.choices[0].message.content == "".join(words(0, 3))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 8
    assert answer.usage.completion_tokens == 3
    assert answer.usage.total_tokens == 11
    (led,) = served.served
    assert answer.id == str(led.id)
    assert led.request.sampling.seed == 7
    assert led.request.labels == {"user": "somebody", "team": "blue"}
    assert led.request.prompt_token_ids == (7, 8, 4, 5, 8, 3, 6, 8)


async def test_an_answer_goes_back_into_the_conversation(
    client: AsyncOpenAI, served: ScriptedScheduler
) -> None:
    """As OpenAI's documents show it: the message itself is appended, with members that mean nothing here."""
    question: ChatCompletionMessageParam = {"role": "user", "content": "hello"}
    first = await client.chat.completions.create(model="tiny", messages=[question], max_tokens=1)
    message = first.choices[0].message
    assert "refusal" in message.model_fields_set
    for again in (message, message.model_dump()):
        asked = [question, cast("ChatCompletionMessageParam", again), question]
        second = await client.chat.completions.create(model="tiny", messages=asked, max_tokens=1)
        assert second.usage is not None
        assert second.usage.prompt_tokens == 11
    assert len({led.request.prompt_token_ids for led in served.served}) == 2


async def test_a_chat_stream(client: AsyncOpenAI, served: ScriptedScheduler) -> None:
    """Deltas add up to the text; the role comes first, the reason last, and the usage behind it when asked for."""
    stream = await client.chat.completions.create(
        model="tiny",
        messages=HELLO,  # type: ignore[arg-type]
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "".join(words(0, 4))
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4
    assert {chunk.id for chunk in chunks} == {str(served.served[0].id)}


async def test_completions_of_text_and_of_token_ids(
    client: AsyncOpenAI, served: ScriptedScheduler
) -> None:
    """The older API, whole and as a stream, with all of its forms of one prompt."""
    for prompt in ("hello world", [1, 3, 4], ["hello world"], [[1, 3, 4]]):
        answer = await client.completions.create(model="tiny", prompt=prompt, max_tokens=2)
        assert answer.choices[0].text == "".join(words(0, 2))
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 3
    stream = await client.completions.create(
        model="tiny", prompt="hello", max_tokens=2, stream=True
    )
    assert "".join([c.choices[0].text async for c in stream]) == "".join(words(0, 2))


async def test_completions_of_several_prompts(
    client: AsyncOpenAI, gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """A request for each prompt; choices are numbered through, usage is the sum, whole and as a stream."""
    prompts = ["hello world", "hello"]
    answer = await client.completions.create(model="tiny", prompt=prompts, max_tokens=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.text for choice in answer.choices} == {"".join(words(0, 2))}
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)
    texts, usages = {0: "", 1: ""}, []
    stream = await client.completions.create(
        model="tiny",
        prompt=[[1, 3, 4], [1, 3]],
        max_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert set(texts.values()) == {"".join(words(0, 2))}
    assert [one.total_tokens for one in usages] == [9]
    assert [len(one.request.prompt_token_ids) for one in served.served] in (
        [3, 2] * 2,
        [3, 2, 2, 3],
        [2, 3] * 2,
        [2, 3, 3, 2],
    )
    key = {"idempotency-key": "k"}
    first, again = [
        await client.completions.create(
            model="tiny", prompt=prompts, max_tokens=2, extra_headers=key
        )
        for _ in range(2)
    ]
    assert first == again
    assert len(served.served) == 6
    scrape = gateway.runtime.metrics.scrape()[0].decode()
    assert 'http_route="/v1/completions",http_response_status_code="200"' in scrape or (
        'http_route="/v1/completions"' in scrape
    )
    with pytest.raises(openai.BadRequestError):
        await client.completions.create(model="tiny", prompt=["hello", " "], max_tokens=2)


async def test_a_client_comes_back_when_it_is_told(
    client: AsyncOpenAI, gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """OpenAI's client retries a refusal by what `retry-after` says, and not at all what no retry helps."""
    asked = {"model": "tiny", "prompt": "hello", "max_tokens": 1}
    waiting = client.with_options(max_retries=3).completions.create(
        **asked, extra_body={"hold": False}
    )
    call = asyncio.create_task(waiting)
    http = gateway.runtime.metrics
    async with asyncio.timeout(scaled(60)):
        while "NO_WORKER" not in http.scrape()[0].decode():  # noqa: ASYNC110 - a counter
            await asyncio.sleep(0.01)
    serving = asyncio.create_task(scheduler.serve())
    await scheduler.snapshot()
    async with asyncio.timeout(scaled(60)):
        while not call.done():
            await scheduler.snapshot()
            await asyncio.sleep(0.2)
    assert (await call).choices[0].text == "w0 "
    with pytest.raises(openai.BadRequestError) as caught:
        await client.with_options(max_retries=3).completions.create(**asked, temperature=9)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert 'http_response_status_code="503"' in http.scrape()[0].decode()
    serving.cancel()


async def test_log_probabilities_behind_an_echo(
    client: AsyncOpenAI, served: ScriptedScheduler
) -> None:
    """Those of the prompt come first, none for its first token; a stream has the same."""
    asked = {"model": "tiny", "prompt": "hello world", "max_tokens": 2, "echo": True}
    answer = await client.completions.create(**asked, logprobs=1)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.token_logprobs == [None, -0.75, -1.0, -25.0, -25.25]
    assert found.top_logprobs is not None
    assert found.top_logprobs[:2] == [None, {"\ufffd": -0.375}]
    stream = await client.completions.create(**asked, logprobs=1, stream=True)
    pieces = [chunk.choices[0].logprobs async for chunk in stream]
    streamed = [one for piece in pieces if piece for one in piece.token_logprobs or ()]
    assert streamed == found.token_logprobs


async def test_extensions(client: AsyncOpenAI, served: ScriptedScheduler) -> None:
    """Class, deadline, sampling beyond OpenAI's and token ids, by the body; an id for the logs by its header."""
    answer = await client.with_options(max_retries=0).chat.completions.with_raw_response.create(
        model="tiny",
        messages=HELLO,  # type: ignore[arg-type]
        max_tokens=1,
        extra_body={
            "priority": "high",
            "deadline": 30,
            "top_k": 5,
            "return_token_ids": True,
            "stop_token_ids": [9],
        },
        extra_headers={"x-request-id": "mine-1"},
    )
    assert answer.headers["x-request-id"] == "mine-1"
    assert float(answer.headers["x-attempts"]) == 1
    choice = answer.parse().choices[0]
    assert choice.model_extra is not None
    assert choice.model_extra["token_ids"] == [100]
    request = served.served[0].request
    assert request.priority.name == "HIGH"
    assert request.sampling.top_k == 5
    assert request.stop.stop_token_ids == (9,)
    assert request.client_request_id == "mine-1"


async def test_models(client: AsyncOpenAI) -> None:
    """The list, one of it, and one that is not there."""
    listed = await client.models.list()
    assert [model.id for model in listed.data] == ["tiny"]
    one = await client.models.retrieve("tiny")
    assert one.model_extra is not None
    assert one.model_extra["max_model_len"] == 64
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("none/such")


async def test_a_client_that_leaves_its_stream_cancels(
    client: AsyncOpenAI, scheduler: ScriptedScheduler
) -> None:
    """Closing the stream takes the request with it."""
    stream, led = await begun_stream(client, scheduler)
    await led.tokens(1)
    chunks = aiter(stream)
    while not (await anext(chunks)).choices[0].delta.content:
        pass
    await stream.close()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag()


async def test_a_client_that_leaves_while_it_waits_cancels(
    client: AsyncOpenAI, scheduler: ScriptedScheduler
) -> None:
    """The same where nothing has been answered yet."""
    asking = asyncio.create_task(
        client.chat.completions.create(model="tiny", messages=HELLO)  # type: ignore[arg-type]
    )
    led = await scheduler.next()
    asking.cancel()
    async with asyncio.timeout(scaled(60)):
        assert await led.cancel_flag()


async def test_refusals_are_the_clients_exceptions(client: AsyncOpenAI) -> None:
    """Each with code and field by the names of this API, and no retry where none helps."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(
            model="tiny",
            messages=HELLO,  # type: ignore[arg-type]
            temperature=9,
            top_p=0,
        )
    body = caught.value.body
    assert isinstance(body, dict)
    assert {one["field"] for one in body["violations"]} == {"temperature", "top_p"}
    assert caught.value.param == "temperature"
    assert caught.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.BadRequestError, match="tools"):
        await client.chat.completions.create(
            model="tiny",
            messages=HELLO,  # type: ignore[arg-type]
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="none", messages=HELLO)  # type: ignore[arg-type]
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        await client.completions.create(model="tiny", prompt="hello " * 100)
    assert long.value.code == "context_length_exceeded"


async def test_a_failure_in_the_stream_is_raised_there(
    client: AsyncOpenAI, scheduler: ScriptedScheduler
) -> None:
    """The status is out by then; the stream says it."""
    stream, led = await begun_stream(client, scheduler)
    failure = Failure("INTERNAL", "broken", "POISON_REQUEST", {})
    await led.finish(FinishReason.ERROR, failure=failure)
    with pytest.raises(openai.APIError, match="broken") as caught:
        _ = [chunk async for chunk in stream]
    assert caught.value.code == "poison_request"


async def test_an_idempotency_key_is_one_execution(
    client: AsyncOpenAI, served: ScriptedScheduler
) -> None:
    """The same body again is answered byte for byte from the first run; another body is a conflict."""
    texts = []
    for _ in range(2):
        answer = await client.chat.completions.with_raw_response.create(
            model="tiny",
            messages=HELLO,  # type: ignore[arg-type]
            max_tokens=2,
            extra_headers={"Idempotency-Key": "k1"},
        )
        texts.append(answer.text)
    assert texts[0] == texts[1]
    assert len(served.served) == 1
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(
            model="tiny",
            messages=HELLO,  # type: ignore[arg-type]
            max_tokens=3,
            extra_headers={"Idempotency-Key": "k1"},
        )


@contextmanager
def _sync_client(gateway: RunningGateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.http}/v1", api_key="any") as client:
        yield client


async def test_the_synchronous_client(gateway: RunningGateway, served: ScriptedScheduler) -> None:
    """As any program without an event loop has it."""

    def talk() -> tuple[str | None, str]:
        with _sync_client(gateway) as client:
            answer = client.chat.completions.create(
                model="tiny",
                messages=HELLO,  # type: ignore[arg-type]
                max_tokens=2,
            )
            stream = client.completions.create(
                model="tiny", prompt="hello", max_tokens=2, stream=True
            )
            return answer.choices[0].message.content, "".join(c.choices[0].text for c in stream)

    whole, streamed = await asyncio.to_thread(talk)
    assert whole == streamed == "".join(words(0, 2))


async def test_the_client_of_hugging_face(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """Another client of the same API, with its own reading of streams."""

    def talk() -> tuple[str, str, int]:
        client = InferenceClient(base_url=f"{gateway.http}/v1", api_key="any")
        whole = client.chat_completion(HELLO, model="tiny", max_tokens=2, seed=3)
        stream = client.chat_completion(HELLO, model="tiny", max_tokens=2, stream=True)
        text = "".join(c.choices[0].delta.content or "" for c in stream)
        return whole.choices[0].message.content or "", text, whole.usage.completion_tokens

    whole, streamed, counted = await asyncio.to_thread(talk)
    assert whole == streamed == "".join(words(0, 2))
    assert counted == 2


async def test_a_stop_of_the_gateway_is_said_in_the_stream(
    client: AsyncOpenAI, gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """An open stream ends with an error that a client can act on, and not with a broken connection."""
    stream, _ = await begun_stream(client, scheduler)
    stopping = asyncio.create_task(gateway.stop())
    with pytest.raises(openai.APIError) as caught:
        _ = [chunk async for chunk in stream]
    assert caught.value.code == "shutting_down"
    await stopping
