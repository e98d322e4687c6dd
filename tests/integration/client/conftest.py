"""A scripted server for each test, and clients of it."""

from collections.abc import Iterator

import pytest

from headrace.client import Client
from tests.integration.client.scripted import Script, ScriptedServer


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
    with Client(server.target, timeout_s=10) as client:
        yield client
