"""The command line of each process."""

import sys
from pathlib import Path

from deploy.local.data_folder import DataFolder
from deploy.local.settings import LocalSettings
from deploy.local.stack import Stack


def stack(settings: LocalSettings) -> Stack:
    return Stack(settings, DataFolder(Path("/data")), cores=8)


def test_services_run_as_modules_of_this_python() -> None:
    """No console script needs to be on PATH."""
    spec = stack(LocalSettings(port=0)).gateway("redis://here")
    assert spec.command[:3] == (sys.executable, "-m", "gateway")
    assert " ".join(spec.command).endswith("--grpc-port 0")
    assert spec.environment == {"HEADRACE_REDIS_URL": "redis://here", "TMPDIR": "/data/tmp"}


def test_worker_gets_only_what_was_chosen() -> None:
    """Without a choice the worker's own defaults hold; they are written down once, there."""
    bare = stack(LocalSettings()).worker(0, "host:1")
    assert not {"--model", "--quantization", "--engine", "--threads"} & set(bare.command)
    chosen = stack(LocalSettings(model="m", quantization="nf4", engine="simulated"))
    command = " ".join(chosen.worker(3, "host:1").command)
    assert "--worker-id worker-3 --model m --quantization nf4 --engine simulated" in command
    assert bare.environment == {"HEADRACE_SCHEDULERS": "host:1", "TMPDIR": "/data/tmp"}


def test_a_stop_is_waited_for_longer_than_it_may_take() -> None:
    """A service that uses all of its grace is not killed for it."""
    spec = stack(LocalSettings(stop_grace_s=7)).scheduler("redis://here")
    assert "--stop-grace-s 7" in " ".join(spec.command)
    assert spec.stop_within_s > 7


def test_workers_share_the_cores() -> None:
    """Three workers on eight cores get two threads each, unless told otherwise."""
    shared = stack(LocalSettings(workers=3)).worker(0, "host:1")
    assert "--threads 2" in " ".join(shared.command)
    told = stack(LocalSettings(workers=3, threads=5)).worker(0, "host:1")
    assert "--threads 5" in " ".join(told.command)
