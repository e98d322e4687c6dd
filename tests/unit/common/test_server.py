"""The service runner: how a service starts, stops, fails, and shows its state meanwhile."""

import asyncio
import http.client
import io
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from common.metrics import Metrics
from common.readiness import MAX_LOOP_SILENCE_S, Liveness, Readiness
from common.server import EXIT_FAILED, EXIT_OK, CannotServe, Runtime, Serve, run_service
from common.service_settings import ServiceSettings
from common.status_endpoint import StatusEndpoint
from common.stop_signals import EXIT_FORCED
from tests.support.fake_clock import FakeClock

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a service in this process: exit code and log lines."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)

    def run(serve: Serve, **settings: Any) -> tuple[int, list[dict[str, Any]]]:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
        given = ServiceSettings(**{"metrics_port": 0, **settings})
        code = run_service("gateway", given, serve)
        return code, [json.loads(line) for line in stderr.getvalue().splitlines()]

    yield run
    structlog.reset_defaults()
    root.handlers, root.level = before
    logging.captureWarnings(capture=False)


def get(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def the_line(lines: list[dict[str, Any]], event: str) -> dict[str, Any]:
    """The one line of an event; others may stand around it, such as warnings that Python gives."""
    (line,) = [line for line in lines if line["event"] == event]
    return line


async def serve_until_stopped(runtime: Runtime) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await runtime.stopping.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_service_finish(run, number):
    """The service ends in its own time, the exit code is 0, start and stop are logged."""
    finished = []

    async def serve(runtime: Runtime) -> None:
        os.kill(os.getpid(), number)
        await runtime.stopping.wait()
        await asyncio.sleep(0)
        finished.append(True)

    code, lines = run(serve)
    assert (code, finished) == (EXIT_OK, [True])
    told = ("starting", "stop asked for", "stopped")
    assert [line["event"] for line in lines if line["event"] in told] == list(told)
    assert the_line(lines, "stopped")["code"] == 0


def test_a_second_signal_cuts_the_stop_short(run):
    """What still runs is cancelled, and its cleanup happens."""
    cleaned = []

    async def serve(runtime: Runtime) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await runtime.stopping.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    code, lines = run(serve)
    assert (code, cleaned) == (EXIT_FORCED, [True])
    assert the_line(lines, "stop forced")["reason"] == "second signal"


def test_a_stop_that_exceeds_its_grace_is_cut_short(run):
    """A stuck client must not hold up a rolling update."""

    async def serve(runtime: Runtime) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    code, lines = run(serve, stop_grace_s=0.01)
    assert code == EXIT_FORCED
    assert "not done after 0.01 s" in the_line(lines, "stop forced")["reason"]


def test_a_crash_is_logged_with_every_cause_and_ends_the_process(run):
    """Nothing fails silently: the code is 1 and each error of the group has its line."""

    async def fail(message: str) -> None:
        raise ValueError(message)

    async def serve(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail("first"))
            tasks.create_task(fail("second"))

    code, lines = run(serve)
    assert code == EXIT_FAILED
    causes = [line["exception"] for line in lines if line["event"] == "service failed"]
    assert len(causes) == 2
    assert "ValueError: first" in causes[0]


def test_a_refusal_to_serve_is_told_without_a_traceback(run):
    """The operator needs the sentence, not our stack."""

    async def serve(runtime: Runtime) -> None:
        raise CannotServe("the model needs 3 GiB, 1 GiB is free")

    code, lines = run(serve)
    assert code == EXIT_FAILED
    line = the_line(lines, "cannot serve")
    assert line["error"] == "the model needs 3 GiB, 1 GiB is free"
    assert "exception" not in line


def test_a_taken_metrics_port_is_said_plainly(run):
    """No service starts half visible, and the setting that has to change is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        code, lines = run(serve_until_stopped, metrics_port=number)
    assert code == EXIT_FAILED
    error = the_line(lines, "cannot start")["error"]
    assert error.startswith(f"--metrics-port: cannot bind 127.0.0.1:{number}: ")


def test_the_ready_file_exists_exactly_while_the_service_serves(run, tmp_path):
    """It names service, process and endpoints; a stale one goes at the start."""
    path = tmp_path / "ready.json"
    path.write_text("stale")
    seen = []

    async def serve(runtime: Runtime) -> None:
        assert not path.exists()
        runtime.announce({"grpc": "127.0.0.1:1"})
        seen.append(json.loads(path.read_text()))
        assert os.listdir(tmp_path) == ["ready.json"]
        await serve_until_stopped(runtime)

    code, lines = run(serve, ready_file=path)
    assert code == EXIT_OK, lines
    assert (seen[0]["service"], seen[0]["pid"]) == ("gateway", os.getpid())
    assert seen[0]["endpoints"]["grpc"] == "127.0.0.1:1"
    assert seen[0]["endpoints"]["metrics"].startswith("127.0.0.1:")
    assert os.listdir(tmp_path) == []


def test_state_is_visible_over_http_while_the_loop_is_stuck(run):
    """Metrics and probes come from another thread; this loop answers nothing meanwhile."""

    async def serve(runtime: Runtime) -> None:
        runtime.metrics.takeovers.add(1)
        runtime.readiness.set("redis", holds=False, detail="connection refused")
        assert get(runtime.metrics_address, "/livez") == (200, "ok\n")
        status, text = get(runtime.metrics_address, "/readyz")
        assert status == 503
        assert json.loads(text)["conditions"]["redis"]["detail"] == "connection refused"
        runtime.readiness.set("redis", holds=True)
        assert get(runtime.metrics_address, "/readyz?verbose=1")[0] == 200
        assert "headrace_takeovers_total 1.0" in get(runtime.metrics_address, "/metrics")[1]
        assert get(runtime.metrics_address, "/")[0] == 404

    code, lines = run(serve)
    assert code == EXIT_OK, lines


def test_a_silent_loop_fails_the_liveness_probe():
    """Kubernetes restarts what cannot move any more."""
    clock = FakeClock()
    liveness, metrics = Liveness(clock), Metrics()
    with StatusEndpoint("127.0.0.1", 0, metrics, Readiness(), liveness) as endpoint:
        clock.advance(MAX_LOOP_SILENCE_S + 1)
        assert get(endpoint.address, "/livez")[0] == 503
        liveness.beat()
        assert get(endpoint.address, "/livez")[0] == 200
    metrics.shutdown(1)


def test_a_process_is_ready_when_all_that_was_stated_holds():
    """Nothing stated yet means starting; a change wakes whoever waits for one."""
    readiness = Readiness()
    states = [readiness.ready]
    change = readiness.next_change()
    readiness.set("redis", holds=True)
    states.append(readiness.ready)
    assert change.is_set()
    unchanged = readiness.next_change()
    readiness.set("redis", holds=True)
    assert not unchanged.is_set()
    readiness.set("model", holds=False, detail="loading")
    states.append(readiness.ready)
    assert states == [False, True, False]
