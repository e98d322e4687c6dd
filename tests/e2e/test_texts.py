"""Text as clients get it, whole, streamed and over HTTP: characters and stop strings across tokens, and no output (B05, B13, B14)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from headrace.client import AsyncClient, InvalidRequest
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import collect
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FLAGS = [*SIMULATED, "--max-seqs", "16"]
REAL_FLAGS = [
    *("--quantization", "int8", "--max-seqs", "8", "--kv-blocks", "256", "--threads", "1"),
    *("--served-model-name", "real"),
]


@contextlib.asynccontextmanager
async def http_client(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the gateway's plain API."""
    base_url = stack.gateways[0].endpoints["http"]
    async with httpx2.AsyncClient(base_url=base_url, timeout=scaled(60)) as client:
        yield client


async def texts_over_http(http: httpx2.AsyncClient, body: dict[str, Any]) -> list[str]:
    """The text of one choice: of a whole answer, and of all events of a stream."""
    whole = (await http.post("/api/generate", json=body)).json()["choices"][0]
    told = (await http.post("/api/generate", json={**body, "stream": True})).text
    events = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
    deltas = [event["delta"].get("text", "") for event in events if "delta" in event]
    return [whole.get("text", ""), "".join(deltas)]


STOPS = {
    "several tokens": lambda text: [text[10:15]],
    "a shared beginning": lambda text: [text[10:12] + "\0", text[10:13]],
    "one inside the other": lambda text: [text[10:14], text[11:13]],
    "the last characters": lambda text: [text[-3:]],
    "multi-byte": lambda text: [next(char for char in text if ord(char) > 127)],
    "never met": lambda text: [text[-2:] + "\0"],
    "begun in the prompt": lambda text: ["ll" + text[0]],
}


async def test_stop_strings_over_the_wire():
    """B14: cut in front of the first match, nothing of it sent, what was held back released; unary, streamed, over HTTP."""
    options: dict[str, Any] = {"model": "sim", "temperature": 0.0, "max_tokens": 100}
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client, http_client(stack) as http:
            whole = (await collect(client, "mill", **options)).text
            for name, stops_of in STOPS.items():
                stops = stops_of(whole)
                streamed = await collect(client, "mill", stop=stops, **options)
                answer = await client.generate("mill", stop=stops, **options)
                found = [whole.index(stop) for stop in stops if stop in whole]
                assert streamed.text == answer.choices[0].text, name
                assert [*answer.choices[0].token_ids] == streamed.token_ids
                assert answer.choices[0].matched_stop == streamed.matched_stop
                body = {"prompt": "mill", "stop": stops, **options}
                assert await texts_over_http(http, body) == [streamed.text] * 2, name
                if not found:
                    assert streamed.text == whole
                    assert streamed.finish_reason == gen.FINISH_REASON_LENGTH
                    continue
                # The match is the one that is complete first.
                ends = {whole.index(stop) + len(stop): stop for stop in stops if stop in whole}
                first = ends[min(ends)]
                assert streamed.matched_stop.stop_string == first, name
                assert streamed.text == whole[: whole.index(first)], name
                kept = await collect(
                    client, "mill", stop=stops, include_stop_in_output=True, **options
                )
                assert kept.text == streamed.text + first, name
            # It overlaps with itself in what is forced here, "aaa…": met at once, and nothing is left of it.
            forced = options | {"logit_bias": {ord("a"): 100.0}}
            overlapping = await collect(client, "mill", stop=["aa"], **forced)
            assert (overlapping.text, len(overlapping.token_ids)) == ("", 2)
            assert overlapping.matched_stop.stop_string == "aa"


async def test_text_of_every_script_through_the_real_model():
    """B13: a choice forces the output: deltas, unary text, text over HTTP and the decoding of the ids are that text,
    wherever it is cut; U+FFFD stands at most once, at the end, for a character that was cut in the middle.
    """
    text = "👨‍👩‍👧‍👦 水車 물레방아 טחנה e\u0301 ü"
    options: dict[str, Any] = {
        "model": "real",
        "constraint": gen.OutputConstraint(choice=gen.ChoiceList(options=[text])),
    }
    with running_stack(worker_flags=REAL_FLAGS) as stack:
        async with AsyncClient(stack.targets) as client, http_client(stack) as http:
            whole = await collect(client, "hi", max_tokens=100, **options)
            assert whole.text == text
            assert whole.finish_reason == gen.FINISH_REASON_STOP
            cuts = range(1, len(whole.token_ids), 7)
            answers = await asyncio.gather(
                *(collect(client, "hi", max_tokens=cut, **options) for cut in cuts),
                *(client.generate("hi", max_tokens=cut, **options) for cut in cuts),
            )
            bodies = [
                {"prompt": "hi", "max_tokens": cut, "model": "real", "choice": [text]}
                for cut in cuts
            ]
            over_http = [await texts_over_http(http, body) for body in bodies]
            several = await client.generate("hi", n=4, max_tokens=cuts[-1], **options)
        for cut, streamed, unary, same in zip(
            cuts, answers[: len(cuts)], answers[len(cuts) :], over_http, strict=True
        ):
            assert same == [streamed.text] * 2
            assert streamed.token_ids == whole.token_ids[:cut]
            assert streamed.text == unary.choices[0].text
            assert streamed.text.count("\ufffd") <= 1
            assert text.startswith(streamed.text.removesuffix("\ufffd"))
            assert streamed.finish_reason == gen.FINISH_REASON_LENGTH
        assert [choice.text for choice in several.choices] == [streamed.text] * 4


SCORING = {
    "echo": gen.OutputOptions(echo=True),
    "prompt logprobs": gen.OutputOptions(prompt_logprobs=True, top_logprobs=1),
}


async def test_no_tokens_at_all():
    """B05: max_tokens 0 is refused alone; with echo or prompt_logprobs it answers with no token, LENGTH and the usage.

    Unset is not 0, more than there is room for is refused, and below 0, which JSON can say, as well.
    """
    body = {"model": "sim", "prompt": "the mill"}
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client, http_client(stack) as http:
            for name, output in SCORING.items():
                options = {"model": "sim", "max_tokens": 0, "output": output}
                answer = await client.generate("the mill", **options)
                (choice,) = answer.choices
                assert choice.finish_reason == gen.FINISH_REASON_LENGTH
                assert [*choice.token_ids] == []
                assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 0)
                assert choice.text == ("the mill" if name == "echo" else "")
                assert len(answer.prompt_logprobs) == (0 if name == "echo" else 8)
                streamed = await collect(client, "the mill", **options)
                assert streamed.answer == ([], choice.text, choice.finish_reason)
                assert (streamed.counted, streamed.error) == ((8, 0), None)
                asked = {field.name: value for field, value in output.ListFields()}
                same = await texts_over_http(http, {**body, "max_tokens": 0, **asked})
                assert same == [choice.text] * 2
            for length in (0, 2**31 - 1, 2**32 - 1):
                with pytest.raises(InvalidRequest) as caught:
                    await client.generate("the mill", model="sim", max_tokens=length)
                assert [one.field for one in caught.value.field_violations] == ["stop.max_tokens"]
            for length in (0, -1, 2**31 - 1, 2**32):
                refused = await http.post("/api/generate", json={**body, "max_tokens": length})
                assert refused.status_code == httpx2.codes.BAD_REQUEST
                assert refused.json()["error"]["param"] == "max_tokens"
            unset = await client.generate("the mill", model="sim")
            assert unset.usage.completion_tokens > 0
