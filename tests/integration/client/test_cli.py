"""The command line against a scripted server: what it asks for, what it prints and where."""

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import (
    REQUEST_ID,
    Script,
    ScriptedServer,
    accepted,
    answer,
    delta,
    finish,
    hang_after,
    stream,
)

pytestmark = pytest.mark.integration


def test_generate_writes_the_answer_and_nothing_else(run: Any, paris: Script) -> None:
    """Piped output is the text with a line end; the only model is used, as a chat."""
    assert run("generate", "Capital?") == (0, "Paris\n", "")
    [call] = paris.of("GenerateStream")
    assert call.request.model == "tiny"
    [message] = call.request.prompt.chat.messages
    assert (message.role, message.content) == (gen.ROLE_USER, "Capital?")
    assert not call.request.HasField("timeout")


def test_generate_passes_every_option(run: Any, paris: Script) -> None:
    """Each flag reaches its field, and nothing that was not given is set."""
    flags = "--model tiny --raw --max-tokens 9 --temperature 0 --top-p 0.5 --top-k 3 --seed 0"
    more = ["--stop", "a", "--stop", "b", "--priority", "high", "--timeout", "2.5"]
    assert run("generate", "x", *flags.split(), *more)[0] == 0
    request = paris.of("GenerateStream")[0].request
    expected = pb.GenerateRequest(
        model="tiny",
        prompt=gen.Prompt(text="x"),
        sampling=gen.SamplingParams(temperature=0, top_p=0.5, top_k=3, seed=0),
        stop=gen.StopConditions(max_tokens=9, stop=["a", "b"]),
        priority=gen.PRIORITY_HIGH,
        timeout=Duration(seconds=2, nanos=500_000_000),
    )
    assert request == expected
    assert not paris.of("GetModel")


def test_a_model_without_a_chat_template_gets_plain_text(run: Any, script: Script) -> None:
    """The form of the prompt follows the model unless a flag says otherwise."""
    script.on("GetModel", answer(pb.GetModelResponse(model=pb.Model(name="gpt2"))))
    script.on("GenerateStream", stream([accepted(), delta(0, ["Paris"]), finish(1)]))
    assert run("generate", "x", "--model", "gpt2")[0] == 0
    assert run("generate", "x", "--model", "gpt2", "--chat")[0] == 0
    forms = [call.request.prompt.WhichOneof("form") for call in script.of("GenerateStream")]
    assert forms == ["text", "chat"]


def test_stats_name_the_ids_and_the_figures(run: Any, paris: Script) -> None:
    """Request id, trace id, usage, queue time and time to first token stand on standard error."""
    code, out, err = run("generate", "x", "--stats")
    assert (code, out) == (0, "Paris\n")
    lines = dict(line.split(":", 1) for line in err.splitlines())
    facts = {name: value.strip() for name, value in lines.items()}
    trace_id = str(paris.of("GenerateStream")[0].metadata["traceparent"])[3:35]
    assert facts == {
        "request id": REQUEST_ID,
        "trace id": trace_id,
        "usage": "3 prompt + 2 completion tokens",
        "queue time": "0.012 s",
        "time to first token": "0.345 s",
        "total time": "0.678 s",
        "finish reason": "stop",
    }


def test_json_facts_come_last_on_one_line(run: Any, paris: Script) -> None:
    """The last line of output parses, and repeats the text."""
    code, out, _ = run("generate", "x", "--json")
    facts = json.loads(out.splitlines()[-1])
    assert code == 0
    assert out.splitlines()[0] == facts["text"] == "Paris"
    assert facts["request_id"] == REQUEST_ID
    assert (facts["queue_s"], facts["time_to_first_token_s"]) == (0.012, 0.345)
    assert (facts["prompt_tokens"], facts["completion_tokens"]) == (3, 2)
    assert (facts["finish_reason"], facts["seed"]) == ("stop", 7)


def test_the_model_must_be_clear(run: Any, script: Script) -> None:
    """Several models are a usage error that names them; none is worth a retry."""
    two = [pb.Model(name="tiny"), pb.Model(name="other")]
    script.on("ListModels", answer(pb.ListModelsResponse(models=two)))
    code, _, err = run("generate", "x")
    assert code == 2
    assert "tiny, other" in err
    script.on("ListModels", answer(pb.ListModelsResponse()))
    assert run("generate", "x")[0] == 4


def test_models_status_and_cancel(run: Any, paris: Script) -> None:
    """What the server says is shown; a cancel that found nothing to do is not an error."""
    assert "tiny" in run("models")[1]
    paris.on(
        "GetRequest",
        answer(pb.GetRequestResponse(request_id="r", status=gen.REQUEST_STATUS_QUEUED)),
    )
    assert "queued" in run("status", "r")[1]
    done = pb.CancelResponse(status=gen.REQUEST_STATUS_FINISHED)
    paris.on("Cancel", answer(done))
    assert run("cancel", "r") == (0, "nothing to cancel (finished)\n", "")


def test_status_shows_queues_and_workers(run: Any, paris: Script) -> None:
    """Where the server can tell; where it cannot, its refusal stands below the models."""
    code, out, err = run("status")
    assert code == 0
    assert "tiny" in out
    assert "UNIMPLEMENTED" in err
    queue = admin.Queue(model="tiny", leader="s1", num_running=2)
    paris.on("GetQueue", answer(admin.GetQueueResponse(queues=[queue])))
    worker = admin.Worker(worker_id="w1", model="tiny", draining=True)
    paris.on("ListWorkers", answer(admin.ListWorkersResponse(workers=[worker])))
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert "s1" in out
    assert "draining" in out


def test_names_are_set_promoted_and_listed(run: Any, script: Script) -> None:
    """Targets with revision and weight, both optional; the answer shows what is in force."""
    target = admin.AliasTarget(model="a/b", revision="r2", weight=5)
    alias = admin.ModelAlias(alias="chat", current=[target])
    script.on("SetModelAlias", answer(admin.SetModelAliasResponse(alias=alias)))
    script.on("PromoteModel", answer(admin.PromoteModelResponse(alias=alias)))
    script.on("ListModelAliases", answer(admin.ListModelAliasesResponse(aliases=[alias])))
    code, out, _ = run("models", "alias", "chat", "a/b@r2=5", "c", "--fallback", "d")
    assert code == 0
    assert "a/b@r2=5" in out
    sent = script.seen[-1].request.alias
    assert [(t.model, t.revision, t.weight) for t in sent.current] == [
        ("a/b", "r2", 5),
        ("c", "", 1),
    ]
    assert [t.model for t in sent.fallback] == ["d"]
    assert run("models", "promote", "chat", "r2")[0] == 0
    assert script.seen[-1].request.revision == "r2"
    assert run("models", "promote", "chat")[0] == 0
    assert script.seen[-1].request.revision == ""
    assert "a/b@r2=5" in run("models", "aliases")[1]
    assert run("models", "alias", "chat", "c=many")[0] == 2


def test_top_shows_frame_after_frame(run: Any, paris: Script) -> None:
    """Piped, frames follow one another as plain text; the count ends it."""
    queue = admin.Queue(model="tiny", leader="s1", num_running=2)
    paris.on("GetQueue", answer(admin.GetQueueResponse(queues=[queue])))
    worker = admin.Worker(worker_id="w1", model="tiny", max_seqs=4)
    paris.on("ListWorkers", answer(admin.ListWorkersResponse(workers=[worker])))
    code, out, err = run("top", "--interval", "0.01", "--frames", "3")
    assert (code, err) == (0, "")
    assert out.count("w1") == 3
    assert out.count("running 2") == 3
    assert "\x1b" not in out


def test_a_drain_tells_what_was_seen_last(run: Any, script: Script) -> None:
    """The snapshot is a moment old: what ran then may have ended."""
    worker = admin.Worker(worker_id="w1", num_running=1)
    script.on("DrainWorker", answer(admin.DrainWorkerResponse(worker=worker)))
    assert run("drain", "w1") == (0, "draining w1; it ran 1 a moment ago\n", "")


def test_attach_follows_from_a_seq(run: Any, script: Script) -> None:
    """The text from there on is written."""
    script.on("Attach", stream([delta(1, ["ris"]), finish(2)], attach=True))
    assert run("attach", REQUEST_ID, "--from-seq", "1") == (0, "ris\n", "")
    assert script.of("Attach")[0].request.from_seq == 1


def test_chat_keeps_the_conversation(
    run: Any, paris: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question carries what was said before it; the end of the input ends the conversation."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("Capital?\n\nSure?\n"))
    assert run("chat", "--system", "Be brief.") == (0, "Paris\nParis\n", "")
    said = [
        [message.content for message in call.request.prompt.chat.messages]
        for call in paris.of("GenerateStream")
    ]
    assert said == [
        ["Be brief.", "Capital?"],
        ["Be brief.", "Capital?", "Paris", "Sure?"],
    ]


def test_the_prompt_may_come_from_standard_input(
    run: Any, paris: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dash reads it whole."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines"))
    assert run("generate", "-", "--raw")[0] == 0
    assert paris.of("GenerateStream")[0].request.prompt.text == "two\nlines"


def test_text_is_written_as_it_comes_and_ctrl_c_cancels(
    server: ScriptedServer, script: Script
) -> None:
    """A reader of the pipe sees the first words before the end; an interrupt ends the call with 130."""
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["Pa"])]))
    with _generate(server) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == "Pa"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "\n", "headrace: interrupted\n")
    assert script.ended["GenerateStream"].wait(60)


def test_an_interrupted_answer_has_the_figures_that_are_known(
    server: ScriptedServer, script: Script
) -> None:
    """Those that the server tells at the end are as they were seen from here, and say so."""
    prompt = pb.GenerateStreamResponse(prompt=gen.PromptProcessed(prompt_tokens=3))
    script.on("GenerateStream", hang_after([accepted(), prompt, delta(0, ["Pa"])]))
    with _generate(server, "--stats") as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == "Pa"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    facts = dict(line.split(": ", 1) for line in err.splitlines() if ": " in line)
    assert facts["usage"].strip() == "3 prompt + 1 completion tokens"
    for name in ("queue time", "time to first token", "total time"):
        assert facts[name].endswith(" s (seen from here)")
    assert facts["finish reason"].strip() == "interrupted"


def test_a_reader_that_has_enough_ends_it_quietly(server: ScriptedServer, script: Script) -> None:
    """Status 141, as of a command that a closed pipe ended; and the request is cancelled."""
    is_closed = threading.Event()

    def talk(request: Any, context: grpc.ServicerContext) -> Iterator[pb.GenerateStreamResponse]:
        yield accepted()
        yield delta(0, ["Pa"])
        assert is_closed.wait(60)
        yield delta(1, ["ris"])
        yield from hang_after([])(request, context)

    script.on("GenerateStream", talk)
    with _generate(server) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == "Pa"
        process.stdout.close()
        is_closed.set()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 141
    assert script.ended["GenerateStream"].wait(60)


def test_several_choices(run: Any, script: Script) -> None:
    """The first as it comes, the others whole behind it, and all of them among the facts."""
    events = [
        accepted(),
        delta(0, ["Pa"]),
        delta(1, ["Ro"], 1),
        delta(2, ["ris"]),
        delta(3, ["me"], 1),
        finish(4, last=False),
        finish(4, gen.FINISH_REASON_LENGTH, index=1),
    ]
    script.on("GenerateStream", stream(events))
    argv = ("generate", "x", "--model", "tiny", "--raw", "--n", "2", "--json")
    code, out, _ = run(*argv)
    assert code == 0
    assert out.startswith("Paris\n--- choice 1\nRome\n{")
    assert json.loads(out.splitlines()[-1])["choices"] == [
        {"index": 0, "text": "Paris", "finish_reason": "stop"},
        {"index": 1, "text": "Rome", "finish_reason": "length"},
    ]
    assert script.of("GenerateStream")[0].request.sampling.n == 2


def _generate(server: ScriptedServer, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "headrace.cli", "--target", server.target, "generate", "x"]
    return subprocess.Popen(
        [*command, "--model", "tiny", "--raw", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
