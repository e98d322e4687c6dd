"""The handle that end-to-end tests have on a service."""

import os

import pytest

from tests.support.processes import ServiceProcess
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

_STUB = "tests.support.stub_service"


def test_comes_back_after_kill() -> None:
    """Endpoints are those of the present start; the log is that of all of them."""
    with ServiceProcess(_STUB) as service:
        first = service.pid
        service.kill()
        assert service.wait() == -9
        service.start()
        assert set(service.wait_until_ready()) == {"metrics"}
        assert service.pid != first
        assert service.stop() == 0
    assert service.log.count("serves") == 2


def test_paused_process_is_ended_too() -> None:
    """Leaving the block ends whatever state the process is in."""
    with ServiceProcess(_STUB, environment={"HEADRACE_REDIS_URL": "redis://x"}) as service:
        assert service.endpoints["HEADRACE_REDIS_URL"] == "redis://x"
        service.pause()
    assert service.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(service.pid, 0)


def test_an_early_exit_shows_its_log() -> None:
    """A service that cannot start fails the test at once, with what it said."""
    with (
        pytest.raises(RuntimeError, match="has no model"),
        ServiceProcess(_STUB, flags=["--worker-id=w"], environment={"STUB_FAILS": "w"}),
    ):
        pass
