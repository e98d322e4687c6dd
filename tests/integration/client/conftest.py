"""A scripted server for each test, and clients of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.cli.__main__ import main
from headrace.client import Client
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import (
    Script,
    ScriptedServer,
    accepted,
    answer,
    delta,
    finish,
    stream,
)

CHAT_MODEL = pb.Model(name="tiny", revision="r1", has_chat_template=True, context_tokens=64)
PARIS = [accepted(), delta(0, ["Pa", "ris"]), finish(2)]


@pytest.fixture
def script() -> Script:
    """What the server does; empty answers UNIMPLEMENTED."""
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[ScriptedServer]:
    """Runs for the test."""
    server = ScriptedServer(script)
    yield server
    server.stop()


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[Client]:
    """A sync client of the server."""
    with Client(server.target, timeout_s=60) as client:
        yield client


@pytest.fixture
def paris(script: Script) -> Script:
    """One chat model, which answers Paris."""
    script.on("ListModels", answer(pb.ListModelsResponse(models=[CHAT_MODEL])))
    script.on("GetModel", answer(pb.GetModelResponse(model=CHAT_MODEL)))
    return script.on("GenerateStream", stream(PARIS))


@pytest.fixture
def run(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; gives its exit code, output and errors."""

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            code = main(argv, {"HEADRACE_TARGET": server.target})
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run
