"""`headrace-local` with a real Redis and stand-ins for the services: what it starts, it also ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from deploy.local.child import ChildSpec
from deploy.local.preflight import problems_of
from deploy.local.readiness import ReadyFile
from tests.support.local_stack import LocalStack, is_running
from tests.support.polling import eventually
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

_STUB = "tests.support.stub_service"
Launch = Callable[..., LocalStack]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a launcher of stubs that the test's end kills, should it still run."""
    modules = [f"--{service}-module={_STUB}" for service in ("gateway", "scheduler", "worker")]
    with contextlib.ExitStack() as exits:

        def start(*flags: str, **environment: str) -> LocalStack:
            stack = LocalStack(tmp_path, *modules, *flags, environment=environment)
            return exits.enter_context(stack)

        yield start


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stop_leaves_nothing(launch: Launch, signum: int) -> None:
    """Both signals end with status 0, and no process, port or file is left."""
    launcher = launch("--workers=2")
    report = launcher.report()
    pids = launcher.pids()
    assert list(pids) == ["redis", "scheduler", "gateway", "worker-0", "worker-1"]
    assert report["workers"] == ["worker-0", "worker-1"]
    assert launcher.stop(signum) == 0, launcher.said()
    assert not [name for name, pid in pids.items() if is_running(pid)]
    with (
        redis.Redis.from_url(report["endpoints"]["redis"], retry=None) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()
    assert not launcher.ready_file.exists()
    assert not list(launcher.temporary.iterdir())


def test_a_second_signal_ends_a_child_that_does_not_listen(launch: Launch, tmp_path: Path) -> None:
    """Nobody has to wait for the end of the grace."""
    data = tmp_path / "data"
    launcher = launch("--stop-grace-s=600", f"--data-dir={data}", STUB_DEAF="worker-0")
    pids = launcher.pids()
    launcher.process.send_signal(signal.SIGTERM)
    log = data / "logs" / "worker-0.log"
    eventually(lambda: "does not listen" in log.read_text())
    assert "stopping: open requests have 600 s to end" in launcher.said()
    assert launcher.stop() == 0
    assert not [name for name, pid in pids.items() if is_running(pid)]


def test_services_are_told_where_the_others_are(launch: Launch) -> None:
    """Gateway and scheduler get Redis' address, workers the scheduler's and nothing of Redis."""
    report = launch().report()
    endpoints = {name: child["endpoints"] for name, child in report["children"].items()}
    redis_url = endpoints["redis"]["redis"]
    assert endpoints["gateway"]["HEADRACE_REDIS_URL"] == redis_url
    assert endpoints["scheduler"]["HEADRACE_REDIS_URL"] == redis_url
    assert endpoints["worker-0"]["HEADRACE_SCHEDULERS"] == endpoints["scheduler"]["grpc"]
    assert "HEADRACE_REDIS_URL" not in endpoints["worker-0"]


@pytest.mark.parametrize("name", ["redis", "scheduler", "gateway", "worker-0"])
def test_a_killed_child_comes_back(launch: Launch, name: str) -> None:
    """Another process serves at the same address, and the ready file names it."""
    launcher = launch()
    before = launcher.report()["children"][name]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: launcher.pids()[name] != before["pid"])
    assert launcher.report()["children"][name]["endpoints"] == before["endpoints"]
    assert launcher.stop() == 0


def test_children_die_with_a_killed_launcher(launch: Launch) -> None:
    """kill -9 of the launcher takes every child along."""
    launcher = launch()
    pids = launcher.pids()
    launcher.stop(signal.SIGKILL)
    eventually(lambda: not [name for name, pid in pids.items() if is_running(pid)])


def test_gives_up_with_the_childs_last_words(launch: Launch) -> None:
    """A child that never serves ends the stack with status 1 and the reason."""
    launcher = launch(STUB_FAILS="worker-0")
    assert launcher.wait() == 1
    assert "worker-0 has no model" in launcher.said()
    assert not list(launcher.temporary.iterdir())


async def test_a_check_that_takes_too_long_is_told(tmp_path: Path) -> None:
    """Before anything starts: which service has not answered, and in which time."""
    never = (sys.executable, "-c", "import signal; signal.pause()")
    spec = ChildSpec("gateway", never, ReadyFile(tmp_path / "ready.json"), ready_within_s=0.2)
    assert await problems_of(spec) == ["gateway has not checked its settings within 0.2 s"]


def test_kept_data_survives_and_is_locked(launch: Launch, tmp_path: Path) -> None:
    """With --data-dir accepted writes outlive the stack; a second launcher there is refused."""
    data = tmp_path / "data"
    launcher = launch(f"--data-dir={data}")
    with redis.Redis.from_url(launcher.report()["endpoints"]["redis"]) as client:
        client.set("key", "value")
    second = subprocess.run(
        [sys.executable, "-m", "deploy.local", "--port=0", f"--data-dir={data}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=scaled(120),
    )
    assert second.returncode == 1
    assert "another headrace-local" in second.stderr
    assert launcher.stop() == 0
    assert (data / "logs" / "gateway.log").read_text() == "gateway serves\ngateway stops\n"
    assert not list((data / "run").iterdir())
    again = launch(f"--data-dir={data}")
    with redis.Redis.from_url(again.report()["endpoints"]["redis"]) as client:
        assert client.get("key") == b"value"
    assert again.stop() == 0


def test_runs_a_command_and_ends(launch: Launch) -> None:
    """The command finds the gateway by its environment; status 0 and an empty machine after it."""
    launcher = launch("--run=sh -c 'echo asks $HEADRACE_TARGET'")
    assert launcher.wait() == 0
    assert "\nasks 127.0.0.1:" in launcher.said()
    assert not list(launcher.temporary.iterdir())


@pytest.mark.parametrize(
    ("command", "status"), [("sh -c 'echo it broke >&2; exit 7'", 7), ("sh -c 'kill $$'", 143)]
)
def test_a_failed_command_is_told_of_by_its_status(
    launch: Launch, command: str, status: int
) -> None:
    """It is the launcher's own; what services said does not bury what the command did."""
    launcher = launch(f"--run={command}")
    assert launcher.wait() == status
    assert f"ended with status {status}" in launcher.said().splitlines()[-1]
    assert "worker-0 serves\n" not in launcher.said()


_KILLS_A_WORKER = """
import json, os, signal, sys, time
def pid():
    return json.load(open(sys.argv[1]))["children"]["worker-0"]["pid"]
killed = pid()
os.kill(killed, signal.SIGKILL)
while pid() == killed:
    time.sleep(0.05)
sys.exit(9)
"""


def test_a_failed_command_shows_the_log_of_a_service_that_failed(
    launch: Launch, tmp_path: Path
) -> None:
    """What a worker that was killed had said, and no other's words."""
    script = tmp_path / "kill.py"
    script.write_text(_KILLS_A_WORKER)
    launcher = launch(f"--run={sys.executable} {script} {tmp_path}/ready.json")
    assert launcher.wait() == 9
    assert "worker-0 was ended by signal 9. The end of its log:\nworker-0 serves" in (
        launcher.said()
    )
    assert "gateway serves\n" not in launcher.said()


def refused(*flags: str, **environment: str) -> list[str]:
    """What a launcher of the real services says that starts nothing."""
    ended = subprocess.run(
        [sys.executable, "-m", "deploy.local", *flags],
        check=False,
        capture_output=True,
        text=True,
        timeout=scaled(120),
        env={**os.environ, **environment},
    )
    assert ended.returncode == 2
    assert not ended.stdout
    *lines, last = ended.stderr.splitlines()
    assert last == "headrace-local: see --help for all settings"
    return [line.removeprefix("headrace-local: ") for line in lines]


def test_all_that_is_wrong_is_told_before_anything_starts() -> None:
    """The launcher's own settings and those of every service, each once."""
    flags = ("--engine=foo", "--quantization=int3", "--workers=-1", "--port=99999")
    told = refused(*flags, HEADRACE_MAX_SEQS="foo", HEADRACE_LOG_LEVEL="loud")
    assert sorted(line.partition(": ")[0] for line in told) == [
        "--engine",
        "--port",
        "--quantization",
        "--workers",
        "HEADRACE_LOG_LEVEL",
        "HEADRACE_MAX_SEQS",
    ]


def test_a_taken_port_is_named_with_its_flag() -> None:
    """Both of them, before anything starts."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port, http_port = (str(held.getsockname()[1]) for held in (one, other))
        assert refused("--port", port, "--http-port", http_port) == [
            f"--port: port {port} is taken on 127.0.0.1; --port 0 picks a free one",
            f"--http-port: port {http_port} is taken on 127.0.0.1; --http-port 0 picks a free one",
        ]


@pytest.mark.parametrize(
    ("command", "words"),
    [("no-such-command x", "no command 'no-such-command'"), ("echo 'x", "No closing quotation")],
)
def test_a_command_that_cannot_be_run_is_told_at_once(command: str, words: str) -> None:
    """A sentence, before anything starts."""
    (told,) = refused("--port=0", "--run", command)
    assert told.startswith("--run: ")
    assert words in told
