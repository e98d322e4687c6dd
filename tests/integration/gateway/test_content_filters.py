"""Content policies in the gateway: prompts that are refused, and answers whose workers judge them."""

from pathlib import Path

import grpc
import pytest

from common.content_filter import CAPABILITY
from common.domain import FinishReason
from common.streams import cards
from common.streams.node import Node
from common.wire.card import encode_card
from headrace.v1 import generation_pb2 as gen
from tests.integration.gateway.conftest import running_gateway
from tests.integration.gateway.raw_http import post
from tests.integration.gateway.requests import max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words
from tests.integration.gateway.statuses import bad_fields, error_info
from tests.integration.gateway.tiny_card import tiny_card
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration

USER = gen.ROLE_USER


async def test_a_prompt_is_judged_in_every_form(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """Text, messages and token ids, over gRPC and HTTP: refused by name, before anything is queued."""
    path = tmp_path / "patterns.toml"
    path.write_text("patterns = ['(?i)hello\\s+world']\n")
    chat = gen.ChatPrompt(messages=[gen.ChatMessage(role=USER, content="say Hello world")])
    prompts = {
        "prompt.text": gen.Prompt(text="HELLO  world"),
        "prompt.chat.messages[0].content": gen.Prompt(chat=chat),
        "prompt": gen.Prompt(token_ids=gen.TokenIds(ids=[3, 4])),
    }
    async with running_gateway(
        redis_server.url, tmp_path, input_filters=(f"patterns={path}",)
    ) as gateway:
        for field, prompt in prompts.items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await gateway.inference.Generate(request(prompt=prompt))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error_info(caught.value).reason == "CONTENT_FILTER"
            assert bad_fields(caught.value) == {field}
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "hello world"}]}
        answer = await post(gateway.http, "/v1/chat/completions", asked)
        assert (answer.status, answer.code) == (400, "content_filter")
        assert answer.fields == {"messages[0].content"}
        call = gateway.inference.GenerateStream(request("world hello", stop=max_tokens(1)))
        assert await scheduler.next()
        call.cancel()


async def test_tokens_do_not_tell_what_is_held_back(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """Where workers filter text there are no token ids, and log probabilities are refused; the end is told as it is."""
    card = tiny_card(capabilities=(CAPABILITY,), revision="r2")
    node = Node(redis_server.url)
    await cards.store_card(node, card.model, card.revision, encode_card(card))
    await node.close()
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.inference.Generate(request(output=gen.OutputOptions(logprobs=True)))
        assert bad_fields(caught.value) == {"output.logprobs"}
        call = gateway.inference.Generate(request(stop=max_tokens(5)))
        led = await scheduler.next()
        await led.prompt()
        await led.tokens(2)
        await led.finish(FinishReason.CONTENT_FILTER)
        answer = await call
        (choice,) = answer.choices
        assert choice.text == "".join(words(0, 2))
        assert not choice.token_ids
        assert choice.finish_reason == gen.FINISH_REASON_CONTENT_FILTER
        assert answer.usage.completion_tokens == 2
