"""Log probabilities in OpenAI's form for completions."""

import pytest

from gateway.http.logprobs import CompletionLogprobs, first_token_of
from headrace.v1 import generation_pb2 as gen


def scored(*tokens: bytes) -> list[gen.Logprobs]:
    """Entries of tokens, each as likely as not."""
    return [gen.Logprobs(chosen=gen.TokenLogprob(token=token, logprob=-0.5)) for token in tokens]


def test_offsets_run_on_over_the_chunks_of_a_stream() -> None:
    """Each token begins where the one before ended, in characters."""
    form = CompletionLogprobs()
    assert form.form([]) is None
    first, second = form.form(scored("é".encode(), b"bc")), form.form(scored(b"d"))
    assert first is not None
    assert second is not None
    assert (first["tokens"], first["text_offset"]) == (["é", "bc"], [0, 1])
    assert (second["tokens"], second["text_offset"]) == (["d"], [3])


@pytest.mark.parametrize(
    ("text", "others", "first"),
    [
        ("hello there\ufffd", (b"lo", b" there"), "hel"),
        ("hello", (b"hello",), ""),
        ("x", (), ""),
        ("other text", (b"lo",), ""),
    ],
)
def test_the_first_token_of_an_echoed_prompt(
    text: str, others: tuple[bytes, ...], first: str
) -> None:
    """It is what stands before the second; an answer that ends in half a character changes nothing."""
    assert first_token_of(text, [gen.Logprobs(), *scored(*others)]) == first
    made = CompletionLogprobs().form([gen.Logprobs(), *scored(*others)], first)
    assert made is not None
    assert made["token_logprobs"] == [None, *(-0.5 for _ in others)]
    assert made["top_logprobs"][0] is None
    assert made["tokens"][0] == first
