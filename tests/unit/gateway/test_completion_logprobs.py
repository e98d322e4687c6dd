"""Log probabilities of completions, with and without the prompt's."""

import json
from typing import Any

import pytest

from gateway.http.logprobs import CompletionLogprobs
from gateway.http.openai_answers import AnswerForm
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

FIRST = gen.Logprobs()


def entry(text: str | bytes) -> gen.Logprobs:
    token = text if isinstance(text, bytes) else text.encode()
    return gen.Logprobs(chosen=gen.TokenLogprob(token_id=len(token), token=token, logprob=-1))


def check(form: dict[str, Any] | None, text: str) -> None:
    """Tokens lie where their offsets say."""
    assert form is not None
    for token, offset in zip(form["tokens"], form["text_offset"], strict=True):
        assert text[offset:].startswith(token), (token, offset)


@pytest.mark.parametrize("prompt_text", ["the mill wheel", ""])
def test_the_prompt_comes_first_and_its_first_token_has_no_number(prompt_text: str) -> None:
    """Whether the prompt came as a text or as token ids."""
    text = "the mill wheel turns"
    prompt, output = [FIRST, entry(" mill"), entry(" wheel")], [entry(" turns")]
    form = CompletionLogprobs(prompt_text).form(text, prompt, output)
    check(form, text)
    assert form is not None
    assert form["tokens"] == ["the", " mill", " wheel", " turns"]
    assert form["token_logprobs"] == [None, -1, -1, -1]
    assert form["top_logprobs"][0] is None


def test_a_prompt_of_one_token() -> None:
    """The text alone tells it, also where the answer's last token is not in the text."""
    for prompt_text, text, output in (
        ("", "the", []),
        ("", "the wheel", [entry(" wheel")]),
        ("the", "the wheel", [entry(" wheel"), entry("<end>")]),
    ):
        form = CompletionLogprobs(prompt_text).form(text, [FIRST], output)
        assert form is not None
        assert form["tokens"][0] == "the"


def test_a_first_token_that_is_no_text() -> None:
    """A special token begins where the next one does."""
    form = CompletionLogprobs("mill").form("mill wheel", [FIRST, entry("mill")], [entry(" wheel")])
    assert form is not None
    assert form["text_offset"] == [0, 0, 4]


def test_halves_of_a_character() -> None:
    """Offsets count characters: two tokens that are one begin at the same place."""
    form = CompletionLogprobs().form(
        "aüb", [], [entry("a"), *map(entry, (b"\xc3", b"\xbc", b"b"))]
    )
    assert form is not None
    assert form["text_offset"] == [0, 1, 1, 2]


def test_a_stream_has_the_same_in_its_pieces() -> None:
    """The prompt's with the first piece of each choice, and offsets that go on."""
    answer = AnswerForm(is_chat=False, num_choices=2, prompt_text="the mill")
    prompt = gen.PromptProcessed(prompt_tokens=2, logprobs=[FIRST, entry(" mill")])
    events = [
        pb.GenerateStreamResponse(accepted=gen.Accepted(request_id="x")),
        pb.GenerateStreamResponse(prompt=prompt),
        *(
            pb.GenerateStreamResponse(
                delta=gen.Delta(index=index, text=text, logprobs=[entry(" turns")])
            )
            for text in ("the mill turns", " turns")
            for index in (0, 1)
        ),
    ]
    lines = b"".join(map(answer.chunks, events)).decode().splitlines()
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: ")]
    for index in (0, 1):
        first, second = [one for one in choices if one["index"] == index]
        assert first["logprobs"]["tokens"] == ["the", " mill", " turns"]
        assert first["logprobs"]["text_offset"] == [0, 3, 8]
        assert second["logprobs"]["text_offset"] == [14]


def test_no_token_and_no_text_still_has_the_prompts() -> None:
    """What a choice would have begun with comes with its end."""
    answer = AnswerForm(is_chat=False)
    logprobs = [FIRST, entry(" mill")]
    answer.chunks(pb.GenerateStreamResponse(prompt=gen.PromptProcessed(logprobs=logprobs)))
    line = answer.chunks(pb.GenerateStreamResponse(finish=gen.ChoiceFinished(last=True)))
    (choice,) = json.loads(line.decode()[6:])["choices"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1]
    whole = pb.GenerateResponse(prompt_logprobs=logprobs, choices=[gen.Choice(text="the mill")])
    made = AnswerForm(is_chat=False).whole(whole)["choices"][0]
    assert made["logprobs"]["tokens"] == ["the", " mill"]
