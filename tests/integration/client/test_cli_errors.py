"""How commands fail: one line on standard error, and an exit code that tells the kind."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from headrace.cli import waiting
from headrace.cli.__main__ import main
from headrace.cli.terminal import Terminal
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import Script, accepted, delta, fail, finish, stream
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("code", "details", "exit_code", "words"),
    [
        (
            grpc.StatusCode.INVALID_ARGUMENT,
            [
                error_details_pb2.ErrorInfo(reason="INVALID_REQUEST"),
                error_details_pb2.BadRequest(
                    field_violations=[
                        error_details_pb2.BadRequest.FieldViolation(
                            field="sampling.top_p", description="at most 1"
                        )
                    ]
                ),
            ],
            2,
            ["INVALID_ARGUMENT", "INVALID_REQUEST", "sampling.top_p: at most 1"],
        ),
        (
            grpc.StatusCode.NOT_FOUND,
            [error_details_pb2.ResourceInfo(resource_type="model", resource_name="nix")],
            3,
            ["NOT_FOUND", "model nix"],
        ),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            [
                error_details_pb2.ErrorInfo(reason="QUEUE_FULL"),
                error_details_pb2.RetryInfo(retry_delay=Duration(seconds=2)),
            ],
            4,
            ["QUEUE_FULL", "retry after 2 s"],
        ),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            [error_details_pb2.ErrorInfo(reason="DEADLINE_EXCEEDED", metadata={"stage": "queue"})],
            4,
            ["DEADLINE_EXCEEDED", "stage queue"],
        ),
        (grpc.StatusCode.INTERNAL, [], 1, ["INTERNAL"]),
    ],
)
def test_errors_are_one_line_and_a_code(
    run: Any,
    script: Script,
    code: grpc.StatusCode,
    details: list[Message],
    exit_code: int,
    words: list[str],
) -> None:
    """The line names code, reason, fields and retry advice; the exit code tells the kind."""
    script.on("GenerateStream", fail(code, "no", details))
    got, out, err = run("generate", "x", "--model", "tiny", "--raw")
    assert (got, out) == (exit_code, "")
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words), err


def test_a_refused_value_is_told_by_its_flag(run: Any, script: Script) -> None:
    """A field that no flag gave keeps its name."""
    fields = (
        "sampling.top_p",
        "stop.stop[1]",
        "stop.stop_token_ids[0]",
        "sampling.n",
        "prompt.text",
    )
    violations = [
        error_details_pb2.BadRequest.FieldViolation(field=name, description="is odd")
        for name in fields
    ]
    message = "; ".join(f"{one.field}: {one.description}" for one in violations)
    details = [error_details_pb2.BadRequest(field_violations=violations)]
    script.on("GenerateStream", fail(grpc.StatusCode.INVALID_ARGUMENT, message, details))
    flags = ("--top-p", "3", "--stop", "a", "--stop", "b", "--stop-token-id", "7")
    _, _, err = run("generate", "x", "--model", "tiny", "--raw", *flags)
    told = [part.partition(":")[0].strip() for part in err.split(";")[1:]]
    assert told == ["--top-p", "--stop[1]", "--stop-token-id[0]", "sampling.n", "PROMPT"]


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_command_that_looks_for_a_gateway_says_so(
    run: Any, script: Script, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    """While a stream that broke is continued, on a line of its own; the answer is whole all the same."""
    noted = threading.Event()
    note = Terminal.note

    def noting(terminal: Terminal, text: str) -> None:
        note(terminal, text)
        if "the connection is lost" in text:
            noted.set()

    monkeypatch.setattr(Terminal, "note", noting)
    monkeypatch.setattr(waiting, "AFTER_S", 0.0)
    if on_terminal:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    def when_noted(_: pb.AttachRequest, __: grpc.ServicerContext) -> Iterator[pb.AttachResponse]:
        assert noted.wait(scaled(60))
        yield pb.AttachResponse(event=delta(1, ["ris"]))
        yield pb.AttachResponse(event=finish(2))

    script.on(
        "GenerateStream", stream([accepted(), delta(0, ["Pa"])], grpc.StatusCode.UNAVAILABLE)
    )
    script.on("Attach", when_noted)
    code, out, err = run("generate", "x", "--model", "tiny", "--raw")
    assert (code, out) == (0, "Paris\n")
    assert "headrace: the connection is lost (UNAVAILABLE); looking for a gateway at" in err
    assert ("\n\nheadrace: the connection" in err) == on_terminal


def test_nobody_listening_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the address that was tried."""
    assert main(["models", "--target", "127.0.0.1:1"], {}) == 4
    assert "is a gateway running at 127.0.0.1:1?" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["generate"], ["generate", "x", "--seed", "-1"], ["what"]])
def test_wrong_usage_ends_with_two(run: Any, argv: list[str]) -> None:
    """As with every command."""
    assert run(*argv)[0] == 2


@pytest.mark.parametrize("argv", [["drain", "w1"], ["dead", "list"], ["dead", "replay", "r"]])
def test_what_the_server_cannot_do_is_said_plainly(run: Any, argv: list[str]) -> None:
    """UNIMPLEMENTED is one line and exit code 2."""
    code, out, err = run(*argv)
    assert code == 2
    assert err.startswith("headrace: UNIMPLEMENTED")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in out + err
