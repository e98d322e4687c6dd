"""`deploy/install.sh`, with an interpreter that only notes what it is asked for."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
READ = ["deploy/install.sh", "deploy/constraints.txt", "pyproject.toml", "protos/pyproject.toml", "setup.py"]  # fmt: skip
INTERPRETER = """#!/bin/sh
case "$*" in
  --version) echo "Python 3.12.9" ;;
  -c*) {check} ;;
  "-m venv --clear .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo made >>calls ;;
  "-m pip --version") {pip} ;;
  "-m pip install"*) echo installed >>calls ;;
  *) exit 9 ;;
esac
"""


def write_interpreter(path: Path, *, check: str = "echo new", pip: str = "echo pip") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(INTERPRETER.format(check=check, pip=pip))
    path.chmod(0o755)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree as far as the script looks at it."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "worker/kernels/src").mkdir(parents=True)
    (tmp_path / "worker/kernels/src/one.cpp").write_text("")
    return tmp_path


def start(tree: Path, python: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["bash", "deploy/install.sh"],
        cwd=tree,
        env={**os.environ, "PYTHON": str(python)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def install(tree: Path, python: Path) -> tuple[int, str, list[str]]:
    """Exit code, what was said, and what was done."""
    process = start(tree, python)
    said, _ = process.communicate(timeout=scaled(80))
    calls = tree / "calls"
    return process.returncode, said, calls.read_text().split() if calls.exists() else []


def test_an_environment_without_pip_is_made_again(tree: Path, tmp_path: Path) -> None:
    """A first installation that was interrupted leaves one; the next one is whole, and later ones do nothing."""
    python = write_interpreter(tmp_path / "python")
    write_interpreter(tree / ".venv/bin/python", pip="exit 1")
    code, said, done = install(tree, python)
    assert (code, done) == (0, ["made", *4 * ["installed"]]), said
    assert install(tree, python) == (0, "", done)


def test_a_whole_environment_is_kept(tree: Path, tmp_path: Path) -> None:
    """What is in it is not fetched again when a requirement changes."""
    python = write_interpreter(tmp_path / "python")
    write_interpreter(tree / ".venv/bin/python")
    code, said, done = install(tree, python)
    assert (code, done) == (0, 4 * ["installed"]), said


def test_an_old_interpreter_is_refused_by_version(tree: Path, tmp_path: Path) -> None:
    """Before anything is made; so is one that does not run."""
    python = write_interpreter(tmp_path / "python", check="echo old")
    code, said, done = install(tree, python)
    assert (code, done) == (1, [])
    assert said == f"Python 3.11 or later is needed; {python} is Python 3.12.9. Set PYTHON.\n"
    code, said, _ = install(tree, tmp_path / "missing")
    assert code == 1
    assert said.startswith(f"{tmp_path}/missing does not run: ")


def test_an_interruption_blames_no_interpreter(tree: Path, tmp_path: Path) -> None:
    """Ctrl-C while the version is looked at says nothing about the version."""
    check = "trap 'exit 130' INT; echo asked >calls; while :; do sleep 0.05; done"
    process = start(tree, write_interpreter(tmp_path / "python", check=check))
    while not (tree / "calls").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=scaled(80))
    assert process.returncode != 0
    assert said == ""
