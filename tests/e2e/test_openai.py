"""OpenAI's client against the real processes: the simulated engine, and once the real model."""

from pathlib import Path

import pytest
from openai import OpenAI

from headrace.client import Client
from tests.support.local_stack import LocalStack
from tests.support.polling import eventually
from tests.support.stack import running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]


def test_the_same_text_over_http_and_grpc() -> None:
    """Greedy text of a stream, of a whole answer and of gRPC is one; a client that leaves frees the worker."""
    with (
        running_stack() as stack,
        OpenAI(base_url=f"{stack.gateways[0].endpoints['http']}/v1", api_key="none") as http,
        Client(stack.targets[0], timeout_s=scaled(30)) as grpc,
    ):
        extra = {"ignore_eos": True}
        whole = http.completions.create(
            model="sim", prompt="hello there", max_tokens=20, temperature=0, extra_body=extra
        )
        stream = http.completions.create(
            model="sim",
            prompt="hello there",
            max_tokens=20,
            temperature=0,
            stream=True,
            extra_body=extra,
        )
        same = grpc.generate(
            "hello there", model="sim", max_tokens=20, temperature=0, ignore_eos=True
        )
        assert whole.choices[0].text == same.choices[0].text
        assert "".join(chunk.choices[0].text for chunk in stream) == same.choices[0].text

        left = http.completions.create(
            model="sim", prompt="hello", max_tokens=2000, stream=True, extra_body=extra
        )
        next(iter(left))
        left.close()
        eventually(
            lambda: (
                stack.metric(stack.workers[0], "headrace_num_requests_running") == 0
                and stack.pending_entries() == 0
            ),
        )


def test_choices_over_http() -> None:
    """Several choices are distinct, repeatable and counted once; who leaves midway frees them all (B44)."""
    with (
        running_stack() as stack,
        OpenAI(base_url=f"{stack.gateways[0].endpoints['http']}/v1", api_key="none") as http,
    ):
        asked = {"model": "sim", "prompt": "a mill", "n": 4, "seed": 5, "temperature": 1.0}
        extra = {"ignore_eos": True}
        whole = http.completions.create(**asked, max_tokens=20, extra_body=extra)
        texts = [choice.text for choice in whole.choices]
        assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
        assert len(set(texts)) == 4
        assert whole.usage is not None
        alone = http.completions.create(**{**asked, "n": 1}, max_tokens=1, extra_body=extra)
        assert alone.usage is not None
        assert whole.usage.prompt_tokens == alone.usage.prompt_tokens
        assert whole.usage.completion_tokens == 80
        streamed = [""] * 4
        for chunk in http.completions.create(
            **asked, max_tokens=20, stream=True, extra_body=extra
        ):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        assert streamed == texts
        left = http.completions.create(**asked, max_tokens=2000, stream=True, extra_body=extra)
        next(iter(left))
        left.close()
        eventually(
            lambda: (
                stack.metric(stack.workers[0], "headrace_num_requests_running") == 0
                and stack.pending_entries() == 0
            ),
        )


def test_scores_of_an_echoed_prompt() -> None:
    """Tokens are the text, offsets point into it, and only the first token has no score."""
    with (
        running_stack() as stack,
        OpenAI(base_url=f"{stack.gateways[0].endpoints['http']}/v1", api_key="none") as http,
    ):
        for max_tokens in (0, 3):
            answer = http.completions.create(
                model="sim",
                prompt="hello there",
                max_tokens=max_tokens,
                echo=True,
                logprobs=1,
                temperature=0,
                extra_body={"ignore_eos": True},
            )
            choice = answer.choices[0]
            scores = choice.logprobs
            assert scores is not None
            assert scores.tokens is not None
            assert scores.token_logprobs is not None
            assert scores.text_offset is not None
            assert answer.usage is not None
            assert len(scores.tokens) == answer.usage.total_tokens
            assert [score is None for score in scores.token_logprobs].count(True) == 1
            assert scores.token_logprobs[0] is None
            assert "".join(scores.tokens[: answer.usage.prompt_tokens]) == "hello there"
            assert scores.text_offset[: len("hello there")] == [*range(len("hello there"))]
            stream = http.completions.create(
                model="sim",
                prompt="hello there",
                max_tokens=max_tokens,
                echo=True,
                logprobs=1,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            pieces = [chunk.choices[0].logprobs for chunk in stream]
            for name in ("tokens", "token_logprobs", "text_offset"):
                streamed = [one for piece in pieces if piece for one in getattr(piece, name)]
                assert streamed == getattr(scores, name)


def test_the_real_model_names_paris(tmp_path: Path) -> None:
    """Chat with the default model, as the README shows it."""
    with LocalStack(tmp_path, "--quantization=int8") as stack:
        url = stack.report()["endpoints"]["http"]
        with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            [model] = client.models.list().data
            stream = client.chat.completions.create(
                model=model.id,
                messages=[{"role": "user", "content": "What is the capital of France?"}],
                max_tokens=32,
                temperature=0,
                stream=True,
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "Paris" in text
        assert stack.stop() == 0, stack.said()
