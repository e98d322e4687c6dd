"""`headrace-local` with a real Redis and stand-ins for the services: what it starts, it also ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from deploy.local.leash import leashed
from tests.support.polling import eventually
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(90))]

_STUB = "tests.support.stub_service"


class Launcher:
    """One `headrace-local` of stubs."""

    def __init__(self, folder: Path, *flags: str, **environment: str) -> None:
        self.ready_file = folder / "ready.json"
        command = [sys.executable, "-m", "deploy.local", "--ready-file", str(self.ready_file)]
        command += [
            f"--{service}-module={_STUB}" for service in ("gateway", "scheduler", "worker")
        ]
        self.folder = folder / "temp"
        self.folder.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.output = (folder / "output").open("w+")
        self.process = subprocess.Popen(
            leashed([*command, "--port=0", *flags]),
            env={**inherited, **environment, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def report(self) -> dict[str, Any]:
        eventually(
            lambda: self.ready_file.exists() or self.process.poll() is not None, within_s=60
        )
        assert self.process.poll() is None, self.said()
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        return found

    def pids(self) -> dict[str, int]:
        return {name: child["pid"] for name, child in self.report()["children"].items()}

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read()

    def stop(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(scaled(30))


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a launcher that the test's end kills, should it still run."""
    started = []

    def start(*flags: str, **environment: str) -> Launcher:
        started.append(Launcher(tmp_path, *flags, **environment))
        return started[-1]

    yield start
    for launcher in started:
        launcher.process.kill()
        launcher.process.wait(scaled(10))
        launcher.output.close()


def running(pid: int) -> bool:
    """Whether the process is alive; a zombie that nobody reaps yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stop_leaves_nothing(launch: Any, signum: int) -> None:
    """Both signals end with status 0, and no process, port or file is left."""
    launcher = launch("--workers=2")
    report = launcher.report()
    pids = launcher.pids()
    assert list(pids) == ["redis", "scheduler", "gateway", "worker-0", "worker-1"]
    assert report["workers"] == ["worker-0", "worker-1"]
    assert launcher.stop(signum) == 0, launcher.said()
    assert not [name for name, pid in pids.items() if running(pid)]
    with (
        redis.Redis.from_url(report["endpoints"]["redis"], retry=None) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()
    assert not launcher.ready_file.exists()
    assert not list(launcher.folder.iterdir())


def test_a_second_signal_ends_a_child_that_does_not_listen(launch: Any, tmp_path: Path) -> None:
    """Nobody has to wait for the end of the grace."""
    data = tmp_path / "data"
    launcher = launch("--stop-grace-s=600", f"--data-dir={data}", STUB_DEAF="worker-0")
    pids = launcher.pids()
    launcher.process.send_signal(signal.SIGTERM)
    log = data / "logs" / "worker-0.log"
    eventually(lambda: "does not listen" in log.read_text())
    assert launcher.stop() == 0
    assert not [name for name, pid in pids.items() if running(pid)]


def test_services_are_told_where_the_others_are(launch: Any) -> None:
    """Gateway and scheduler get Redis' address, workers the scheduler's and nothing of Redis."""
    report = launch().report()
    endpoints = {name: child["endpoints"] for name, child in report["children"].items()}
    redis_url = endpoints["redis"]["redis"]
    assert endpoints["gateway"]["HEADRACE_REDIS_URL"] == redis_url
    assert endpoints["scheduler"]["HEADRACE_REDIS_URL"] == redis_url
    assert endpoints["worker-0"]["HEADRACE_SCHEDULERS"] == endpoints["scheduler"]["grpc"]
    assert "HEADRACE_REDIS_URL" not in endpoints["worker-0"]


@pytest.mark.parametrize("name", ["redis", "scheduler", "gateway", "worker-0"])
def test_a_killed_child_comes_back(launch: Any, name: str) -> None:
    """Another process serves at the same address, and the ready file names it."""
    launcher = launch()
    before = launcher.report()["children"][name]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: launcher.pids()[name] != before["pid"], within_s=30)
    assert launcher.report()["children"][name]["endpoints"] == before["endpoints"]
    assert launcher.stop() == 0


def test_children_die_with_a_killed_launcher(launch: Any) -> None:
    """kill -9 of the launcher takes every child along."""
    launcher = launch()
    pids = launcher.pids()
    launcher.stop(signal.SIGKILL)
    eventually(lambda: not [name for name, pid in pids.items() if running(pid)])


def test_gives_up_with_the_childs_last_words(launch: Any) -> None:
    """A child that never serves ends the stack with status 1 and the reason."""
    launcher = launch(STUB_FAILS="worker-0")
    assert launcher.process.wait(scaled(60)) == 1
    assert "worker-0 has no model" in launcher.said()
    assert not list(launcher.folder.iterdir())


def test_kept_data_survives_and_is_locked(launch: Any, tmp_path: Path) -> None:
    """With --data-dir accepted writes outlive the stack; a second launcher there is refused."""
    data = tmp_path / "data"
    launcher = launch(f"--data-dir={data}")
    with redis.Redis.from_url(launcher.report()["endpoints"]["redis"]) as client:
        client.set("key", "value")
    second = subprocess.run(
        [sys.executable, "-m", "deploy.local", f"--data-dir={data}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=scaled(30),
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


def test_runs_a_command_and_ends(launch: Any) -> None:
    """The command finds the gateway by its environment; status 0 and an empty machine after it."""
    launcher = launch("--run=sh -c 'echo asks $HEADRACE_TARGET'")
    assert launcher.process.wait(scaled(60)) == 0
    assert "\nasks 127.0.0.1:" in launcher.said()
    assert not list(launcher.folder.iterdir())


def test_a_failed_command_shows_all_logs(launch: Any) -> None:
    """Status 1, and what each process said last, since the logs are gone by then."""
    launcher = launch("--run=false")
    assert launcher.process.wait(scaled(60)) == 1
    for name in ("gateway", "scheduler", "worker-0"):
        assert f"{name} serves" in launcher.said()
