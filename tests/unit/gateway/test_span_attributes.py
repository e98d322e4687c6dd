"""What a call's span says of a request: the conventions' names, labels, and content within bounds."""

import json

from common.domain import GenerationRequest, SamplingParams, StopConditions
from gateway.draft import ChatMessage, ChatPrompt, TextPrompt, TokenPrompt
from gateway.span_attributes import (
    MAX_CONTENT_CHARS,
    input_messages,
    output_messages,
    request_attributes,
)


def request(**changes) -> GenerationRequest:
    fields = {"sampling": SamplingParams(seed=7), "stop": StopConditions(max_tokens=5)}
    return GenerationRequest("m/0/x", "m", "r1", (1, 2), **(fields | changes))


def test_only_what_is_used_is_named():
    """Penalties, choices and stop strings appear where a request has them."""
    plain = request_attributes(request())
    assert plain["gen_ai.request.seed"] == 7
    assert plain["gen_ai.response.model"] == "r1"
    assert not {"gen_ai.request.choice.count", "gen_ai.request.stop_sequences"} & plain.keys()
    full = request_attributes(
        request(
            sampling=SamplingParams(seed=1, n=2, presence_penalty=0.5, frequency_penalty=1.0),
            stop=StopConditions(max_tokens=1, stop=("a", "b")),
            labels={"team": "x" * 500},
        )
    )
    assert full["gen_ai.request.choice.count"] == 2
    assert full["gen_ai.request.presence_penalty"] == 0.5
    assert full["gen_ai.request.frequency_penalty"] == 1.0
    assert full["gen_ai.request.stop_sequences"] == ["a", "b"]
    assert full["headrace.label.team"] == "x" * 200


def test_content_follows_the_convention():
    """Roles and text parts; token ids have no text."""
    chat = ChatPrompt([ChatMessage("system", "be kind"), ChatMessage("user", "hi")])
    assert json.loads(input_messages(chat)) == [
        {"role": "system", "parts": [{"type": "text", "content": "be kind"}]},
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
    ]
    assert input_messages(TokenPrompt([1])) == ""
    (answer,) = json.loads(output_messages({0: "ho"}, "stop"))
    assert answer["finish_reason"] == "stop"
    assert answer["parts"] == [{"type": "text", "content": "ho"}]


def test_content_is_bounded():
    """A long prompt is cut; what comes behind it is empty, not missing."""
    (one,) = json.loads(input_messages(TextPrompt("y" * (2 * MAX_CONTENT_CHARS))))
    assert len(one["parts"][0]["content"]) == MAX_CONTENT_CHARS
    long = ChatMessage("user", "z" * MAX_CONTENT_CHARS)
    _, second = json.loads(input_messages(ChatPrompt([long, long])))
    assert second["parts"][0]["content"] == ""
