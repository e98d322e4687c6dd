"""Every feature of a request over real processes, and through kill -9 of the worker that runs it."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FLAGS = [*SIMULATED, "--step-ms", "15", "--kv-blocks", "512", "--max-seqs", "16"]
REAL_FLAGS = [
    "--quantization",
    "int8",
    "--max-seqs",
    "8",
    "--kv-blocks",
    "256",
    "--threads",
    "1",
    "--served-model-name",
    "real",
]
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "mills": {
                "type": "array",
                "minItems": 4,
                "maxItems": 4,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 8, "maxLength": 12},
                        "wheels": {"type": "integer", "minimum": 100, "maximum": 999},
                    },
                    "required": ["name", "wheels"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["mills"],
        "additionalProperties": False,
    }
)
EVERYTHING = gen.OutputOptions(logprobs=True, top_logprobs=2, prompt_logprobs=True, echo=True)
PENALTIES: dict[str, Any] = {
    "repetition_penalty": 1.2,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "min_p": 0.01,
    "typical_p": 0.95,
    "logit_bias": {120: -100.0},
}


def asks() -> list[dict[str, Any]]:
    """Requests that between them use everything; long enough to be under way when the worker dies."""
    regex = gen.OutputConstraint(regex="([a-f]{3}-){30}end")
    return [
        {"constraint": gen.OutputConstraint(json_schema=SCHEMA), "max_tokens": 400},
        {"constraint": regex, "max_tokens": 200, "output": EVERYTHING},
        {"max_tokens": 90, "ignore_eos": True, "output": EVERYTHING, **PENALTIES},
        {"max_tokens": 90, "ignore_eos": True, "min_tokens": 60, "stop_token_ids": [101, 32]},
        {"max_tokens": 90, "ignore_eos": True, "n": 1, "output": gen.OutputOptions(logprobs=True)},
    ]


async def run_all(stack: Stack, count: TokenCount) -> list[Outcome]:
    """All of them at once, each seeded and each twice."""
    async with AsyncClient(stack.targets) as client:
        model = (await client.models())[0].name
        return await asyncio.gather(
            *(
                collect(
                    client,
                    f"Tell of mill number {number}.",
                    model=model,
                    count=count,
                    seed=number,
                    temperature=0.8,
                    **options,
                )
                for number, options in enumerate(asks() * 2)
            )
        )


def stub_of(stack: Stack) -> tuple[grpc.Channel, InferenceServiceStub]:
    channel = grpc.insecure_channel(stack.targets[0])
    return channel, InferenceServiceStub(channel)


def assert_equal(got: Outcome, expected: Outcome) -> None:
    """Everything that a client was told of two runs of one request."""
    assert got.error is None, got.error
    assert got.answer == expected.answer
    assert got.logprobs == expected.logprobs
    assert got.prompt_logprobs == expected.prompt_logprobs
    assert got.counted == expected.counted
    assert got.matched_stop == expected.matched_stop


@pytest.mark.parametrize(
    "flags", [pytest.param(FLAGS, id="simulated"), pytest.param(REAL_FLAGS, id="real")]
)
async def test_a_killed_worker_is_noticed_by_nobody(flags: list[str]):
    """Grammar, penalties, log probabilities, echo, least lengths: an interrupted run equals an undisturbed one."""
    with running_stack(workers=2, worker_flags=flags) as stack:
        undisturbed = await run_all(stack, TokenCount())
        json.loads(undisturbed[0].text)
        assert len(undisturbed[1].logprobs) == len(undisturbed[1].token_ids)
        assert len(undisturbed[1].prompt_logprobs) == undisturbed[1].usage.prompt_tokens
        assert undisturbed[2].text.startswith("Tell of mill number 2.")
        count = TokenCount()
        load = asyncio.create_task(run_all(stack, count))
        await count.more(sum(len(one.token_ids) for one in undisturbed) // 3)
        stack.workers[0].kill()
        for got, expected in zip(await load, undisturbed, strict=True):
            assert_equal(got, expected)
        eventually(lambda: stack.pending_entries() == 0)


async def test_a_stop_string_half_sent_when_the_worker_dies():
    """What was held back for it is held back again: no part of it is ever sent."""
    with running_stack(workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            options: dict[str, Any] = {"model": "sim", "temperature": 0.0, "max_tokens": 120}
            whole = await collect(client, "mill", **options)
            # Long, so that a kill falls inside it: held back from its first character to its last.
            stop = whole.text[20:80]
            seen: list[str] = []
            count = TokenCount()
            running = asyncio.create_task(
                collect(
                    client,
                    "mill",
                    stop=stop,
                    count=count,
                    on_event=lambda event: seen.append(event.delta.text),
                    **options,
                )
            )
            await count.more(50)
            stack.workers[0].kill()
            outcome = await running
        first = whole.text.index(stop)
        assert outcome.error is None
        assert outcome.text == "".join(seen) == whole.text[:first]
        assert outcome.matched_stop.stop_string == stop
        assert outcome.finish_reason == gen.FINISH_REASON_STOP


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
    """Unary and streamed alike: cut in front of the first match, nothing of it sent, what was held back released."""
    options: dict[str, Any] = {"model": "sim", "temperature": 0.0, "max_tokens": 100}
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            whole = (await collect(client, "mill", **options)).text
            for name, stops_of in STOPS.items():
                stops = stops_of(whole)
                streamed = await collect(client, "mill", stop=stops, **options)
                answer = await client.generate("mill", stop=stops, **options)
                found = [whole.index(stop) for stop in stops if stop in whole]
                assert streamed.text == answer.choices[0].text, name
                assert [*answer.choices[0].token_ids] == streamed.token_ids
                assert answer.choices[0].matched_stop == streamed.matched_stop
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
    """A choice forces the output: deltas, unary text and the decoding of the ids are that text, wherever it is cut."""
    text = "👨‍👩‍👧‍👦 水車 물레방아 טחנה e\u0301 ü"
    options: dict[str, Any] = {
        "model": "real",
        "constraint": gen.OutputConstraint(choice=gen.ChoiceList(options=[text])),
    }
    with running_stack(worker_flags=REAL_FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            whole = await collect(client, "hi", max_tokens=100, **options)
            assert whole.text == text
            assert whole.finish_reason == gen.FINISH_REASON_STOP
            cuts = range(1, len(whole.token_ids), 7)
            answers = await asyncio.gather(
                *(collect(client, "hi", max_tokens=cut, **options) for cut in cuts),
                *(client.generate("hi", max_tokens=cut, **options) for cut in cuts),
            )
            several = await client.generate("hi", n=4, max_tokens=cuts[-1], **options)
        for cut, streamed, unary in zip(
            cuts, answers[: len(cuts)], answers[len(cuts) :], strict=True
        ):
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


def test_no_tokens_at_all():
    """max_tokens 0 is refused alone; with echo or prompt_logprobs it answers with no token, LENGTH and the usage."""
    with running_stack(worker_flags=FLAGS) as stack:
        channel, stub = stub_of(stack)
        with channel:
            base = pb.GenerateRequest(
                model="sim",
                prompt=gen.Prompt(text="the mill"),
                stop=gen.StopConditions(max_tokens=0),
            )
            with pytest.raises(grpc.RpcError) as caught:
                stub.Generate(base, timeout=30)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            for name, output in SCORING.items():
                request = pb.GenerateRequest(output=output)
                request.MergeFrom(base)
                answer = stub.Generate(request, timeout=30)
                (choice,) = answer.choices
                assert choice.finish_reason == gen.FINISH_REASON_LENGTH
                assert list(choice.token_ids) == []
                assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 0)
                assert choice.text == ("the mill" if name == "echo" else "")
                assert len(answer.prompt_logprobs) == (0 if name == "echo" else 8)
                events = list(stub.GenerateStream(request, timeout=30))
                assert "".join(event.delta.text for event in events) == choice.text
            for length in (2**31 - 1, 2**32 - 1):
                huge = pb.GenerateRequest(stop=gen.StopConditions(max_tokens=length))
                huge.prompt.text, huge.model = "the mill", "sim"
                with pytest.raises(grpc.RpcError) as caught:
                    stub.Generate(huge, timeout=30)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
