"""`headrace-local` and the real services: what a new user does first."""

import os
import signal
from pathlib import Path

import pytest

from headrace.client import Client
from tests.support.local_stack import LocalStack, is_running
from tests.support.polling import eventually
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]

ROOT = Path(__file__).parents[2]
_QUESTION = "What is the capital of France?"


def ask(address: str) -> str:
    """A whole answer of the simulated model."""
    with Client(address, timeout_s=scaled(30)) as client:
        [model] = client.models()
        answer = client.generate(
            _QUESTION, model=model.name, max_tokens=8, ignore_eos=True, temperature=0
        )
    return answer.choices[0].text


def files_of_the_tree() -> dict[Path, int]:
    """Everything outside the environment, and when it was written."""
    found = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in {".venv", ".git"}]
        paths = [Path(folder, name) for name in names]
        found |= {path: path.stat().st_mtime_ns for path in paths}
    return found


def test_the_demo(tmp_path: Path) -> None:
    """The real model, quantized to int8, names Paris; ids and figures are printed; nothing is left, nor written among the sources."""
    command = f"headrace generate --stats --temperature 0 '{_QUESTION}'"
    before = files_of_the_tree()
    flags = ["--quantization=int8", f"--run={command}"]
    # As `make demo` does it.
    with LocalStack(tmp_path, *flags, environment={"PYTHONDONTWRITEBYTECODE": "1"}) as stack:
        assert stack.wait(within_s=240) == 0, stack.said()
        said = stack.said()
        assert "Paris" in said
        for figure in (
            "request id:",
            "trace id:",
            "usage:",
            "queue time:",
            "time to first token:",
        ):
            assert figure in said
        assert not list(stack.temporary.iterdir())
    assert files_of_the_tree() == before


def test_stops_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    """Several workers serve; SIGINT ends every process with status 0 and removes every file."""
    with LocalStack(tmp_path, "--engine=simulated", "--workers=2") as stack:
        assert ask(stack.report()["endpoints"]["grpc"])
        pids = stack.pids()
        assert stack.stop(signal.SIGINT) == 0, stack.said()
        assert not [name for name, pid in pids.items() if is_running(pid)]
        assert not list(stack.temporary.iterdir())
        for name in pids:
            assert f"{name} was ended by" not in stack.said()


@pytest.mark.parametrize("name", ["worker-0", "scheduler", "gateway", "redis"])
def test_serves_again_after_a_crash(tmp_path: Path, name: str) -> None:
    """kill -9 of any one process: the launcher brings it back, and the same answer comes again."""
    with LocalStack(tmp_path, "--engine=simulated") as stack:
        address = stack.report()["endpoints"]["grpc"]
        before = ask(address)
        pid = stack.pids()[name]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: stack.pids()[name] != pid, within_s=60)
        assert ask(address) == before
        assert stack.stop() == 0, stack.said()
