"""How commands fail: one line on standard error, and an exit code that tells the kind."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from headrace.cli.__main__ import main
from tests.integration.client.scripted import Script, fail

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
