"""Requests from plain values: three forms of prompt, options that reach their fields."""

from typing import Any

import pytest

from headrace.client.requests import GenerateOptions, build_prompt, build_request, duration
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


def test_prompts_are_told_apart_by_type() -> None:
    """A text, messages, token ids; a ready prompt passes."""
    assert build_prompt("hi") == gen.Prompt(text="hi")
    assert build_prompt([1, 2]) == gen.Prompt(token_ids=gen.TokenIds(ids=[1, 2]))
    assert build_prompt([{"role": "user", "content": "hi", "name": "Al"}]) == gen.Prompt(
        chat=gen.ChatPrompt(
            messages=[gen.ChatMessage(role=gen.ROLE_USER, content="hi", name="Al")]
        )
    )
    ready = gen.Prompt(text="hi", truncate_to_tokens=3)
    assert build_prompt(ready) == ready


def test_an_empty_prompt_is_the_servers_to_refuse() -> None:
    """It is sent with its form set, so that the refusal names the field."""
    assert build_prompt("").WhichOneof("form") == "text"
    assert build_prompt([]).WhichOneof("form") == "token_ids"


@pytest.mark.parametrize(
    "prompt",
    [
        [{"role": "robot", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": "x", "tone": "kind"}],
        [1, {"role": "user", "content": "x"}],
        [-1],
    ],
)
def test_what_is_no_prompt_is_refused_at_once(prompt: list[Any]) -> None:
    """With a plain Python error: nothing was sent."""
    with pytest.raises((TypeError, ValueError)):
        build_prompt(prompt)


def test_options_reach_their_fields_and_zero_is_not_unset() -> None:
    """Presence is kept: temperature 0 and seed 0 are said, everything else is not."""
    request = build_request(
        "x", model="m", temperature=0, seed=0, logit_bias={5: -1.0}, stop="end", resumable=False
    )
    assert request == pb.GenerateRequest(
        model="m",
        prompt=gen.Prompt(text="x"),
        sampling=gen.SamplingParams(temperature=0, seed=0, logit_bias={5: -1.0}),
        stop=gen.StopConditions(stop=["end"]),
        resumable=False,
    )


def test_a_ready_request_is_copied_and_options_replace_its_fields() -> None:
    """The caller's message stays as it is."""
    ready = pb.GenerateRequest(model="m", stop=gen.StopConditions(stop=["a"], max_tokens=3))
    request = build_request(ready, stop=["b"], priority="high")
    assert list(request.stop.stop) == ["b"]
    assert request.stop.max_tokens == 3
    assert request.priority == gen.PRIORITY_HIGH
    assert list(ready.stop.stop) == ["a"]


def test_every_field_of_the_contract_has_an_option() -> None:
    """A field that is added to the protos is missed here, unless it is an option too."""
    fields = {
        *pb.GenerateRequest.DESCRIPTOR.fields_by_name,
        *gen.SamplingParams.DESCRIPTOR.fields_by_name,
        *gen.StopConditions.DESCRIPTOR.fields_by_name,
    }
    # The prompt and the timeout are arguments of their own; sampling is given by its parts.
    assert set(GenerateOptions.__annotations__) == fields - {"prompt", "sampling", "timeout"}


def test_unknown_options_are_refused() -> None:
    """A misspelt option is not dropped."""
    with pytest.raises(TypeError, match="max_token"):
        build_request("x", max_token=3)  # type: ignore[call-arg]


def test_unknown_priorities_are_refused() -> None:
    """By name."""
    with pytest.raises(ValueError, match="urgent"):
        build_request("x", priority="urgent")  # type: ignore[arg-type]


def test_durations_keep_their_fraction() -> None:
    """To the nanosecond, as far as a float goes."""
    assert duration(2.25).ToNanoseconds() == 2_250_000_000
