"""OpenAI's client against the real processes: the simulated engine, and once the real model."""

from pathlib import Path

import pytest
from openai import OpenAI

from headrace.client import Client
from tests.support.local_stack import LocalStack
from tests.support.polling import eventually
from tests.support.stack import running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(300))]


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
            within_s=20,
        )


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
