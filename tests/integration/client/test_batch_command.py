"""`headrace batch`: every line once, whatever interrupts it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import Script, ScriptedServer, answer
from tests.support.polling import eventually
from tests.support.time_scale import scaled


def lines(path: Path) -> dict[str, Any]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({one["custom_id"] for one in found}) == len(found)
    return {one["custom_id"]: one for one in found}


def source(folder: Path, *requests: dict[str, Any]) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def echo(request: pb.GenerateRequest, _: grpc.ServicerContext) -> pb.GenerateResponse:
    """The prompt again."""
    choice = gen.Choice(text=request.prompt.text, finish_reason=gen.FINISH_REASON_STOP)
    return pb.GenerateResponse(request_id="r", model=request.model, choices=[choice])


def test_answers_errors_and_a_second_run(script: Script, run: Any, tmp_path: Path) -> None:
    """Options of a line reach the request; a bad line is its own error; a second run asks for nothing."""
    script.on("ListModels", answer(pb.ListModelsResponse(models=[pb.Model(name="m")])))
    script.on("Generate", echo)
    path, out = (
        source(
            tmp_path,
            {"custom_id": "a", "prompt": "one", "max_tokens": 5, "priority": "batch"},
            {"custom_id": "b", "messages": [{"role": "nobody", "content": "x"}]},
            {"prompt": "three"},
        ),
        tmp_path / "out.jsonl",
    )
    code, _, err = run("batch", str(path), str(out), "--concurrency", "2")
    assert code == 1
    assert "1 of 3" in err
    found = lines(out)
    assert found["a"]["choices"][0] == {"index": 0, "text": "one", "finish_reason": "stop"}
    assert found["b"]["error"]["code"] == "INVALID_ARGUMENT"
    assert found["3"]["model"] == "m"
    calls = [seen.request for seen in script.of("Generate")]
    assert {call.prompt.text: call.stop.max_tokens for call in calls} == {"one": 5, "three": 0}
    assert len({call.idempotency_key for call in calls}) == 2
    assert run("batch", str(path), str(out), "--model", "m")[0] == 0
    assert len(script.of("Generate")) == 2


def test_a_cut_line_is_asked_for_again(script: Script, run: Any, tmp_path: Path) -> None:
    """A run that was killed in the middle of a line leaves no half answer behind."""
    script.on("Generate", echo)
    path = source(tmp_path, {"custom_id": "a", "prompt": "x"}, {"custom_id": "b", "prompt": "y"})
    out = tmp_path / "out.jsonl"
    out.write_text('{"custom_id": "a"}\n{"custom_id": "b", "cho')
    assert run("batch", str(path), str(out), "--model", "m")[0] == 0
    assert set(lines(out)) == {"a", "b"}
    assert [seen.request.prompt.text for seen in script.of("Generate")] == ["y"]


@pytest.mark.parametrize(
    "text", ["no json\n", '{"custom_id": "a"}\n', '{"prompt": "x", "custom_id": "1"}\n' * 2]
)
def test_an_input_that_is_none_is_refused_before_anything_runs(
    script: Script, run: Any, tmp_path: Path, text: str
) -> None:
    """By file and line."""
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    code, _, err = run("batch", str(path), str(tmp_path / "out.jsonl"), "--model", "m")
    assert code == 2
    assert "in.jsonl" in err
    assert not script.seen


@pytest.mark.timeout(scaled(180))
def test_ctrl_c_and_again(server: ScriptedServer, script: Script, tmp_path: Path) -> None:
    """Open calls end, what was answered is kept, and the next run asks for the rest, under the same keys."""
    may_go = threading.Event()

    def slow(request: pb.GenerateRequest, context: grpc.ServicerContext) -> pb.GenerateResponse:
        if request.prompt.text != "first":
            context.add_callback(may_go.set)
            may_go.wait(scaled(120))
        return echo(request, context)

    script.on("Generate", slow)
    names = ("first", "second", "third")
    path = source(tmp_path, *({"custom_id": name, "prompt": name} for name in names))
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "headrace.cli", "batch", str(path), str(out)]
    command += ["--model", "m", "--concurrency", "2", "--target", server.target]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    with subprocess.Popen(command, env=environ, start_new_session=True) as process:
        eventually(lambda: out.exists() and "first" in out.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(scaled(120)) == 130
    assert set(lines(out)) == {"first"}
    before = {seen.request.prompt.text: seen.request.idempotency_key for seen in script.seen}
    script.on("Generate", echo)
    script.seen.clear()
    assert subprocess.run(command, env=environ, check=False, timeout=scaled(120)).returncode == 0
    assert set(lines(out)) == set(names)
    again = {seen.request.prompt.text: seen.request.idempotency_key for seen in script.seen}
    assert set(again) == {"second", "third"}
    assert again["second"] == before["second"]
