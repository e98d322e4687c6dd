"""`make demo`: what is asked arrives as it was written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NASTY = [
    'What\'s "this"?',
    "it costs $5, $HOME, $(SHELL), $(shell date) and $$",
    "`date` \\ %s %d \\n; exit 3 # no & yes | | * ? ~",
    "--help",
    "two\nlines\r\nand a third\n",
    "Schöne Grüße, 日本 🙂",
]


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Stands for the environment's: a `headrace-local` that notes what it is given."""
    script = tmp_path / "headrace-local"
    script.write_text(
        f'#!/bin/sh\ncat >{tmp_path}/stdin\nfor word; do echo "$word"; done >{tmp_path}/words\n'
    )
    script.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("question", NASTY)
@pytest.mark.parametrize("by_environment", [False, True])
def test_any_question_reaches_the_command(
    bin_folder: Path, question: str, by_environment: bool
) -> None:
    """Quotes, dollars, backticks and line ends mean nothing on the way, and the prompt is read from there."""
    command = ["make", "--no-print-directory", "-o", "venv", "demo", f"BIN={bin_folder}"]
    environ = {**os.environ, "QUESTION": question} if by_environment else dict(os.environ)
    if not by_environment:
        command.append(f"QUESTION={question}")
    subprocess.run(command, cwd=ROOT, check=True, env=environ, timeout=80)
    assert (bin_folder / "stdin").read_bytes() == question.encode()
    assert (bin_folder / "words").read_text().splitlines()[-1].endswith(" -")


_COPY = """
import asyncio
from deploy.local.run_command import run_command
asyncio.run(run_command("cat", "here:1"))
"""


def test_the_command_reads_what_the_launcher_was_given() -> None:
    """Standard input of `headrace-local --run` is the command's."""
    question = "\n".join(NASTY).encode()
    command = [sys.executable, "-c", _COPY]
    done = subprocess.run(
        command, cwd=ROOT, check=True, input=question, capture_output=True, timeout=80
    )
    assert (done.stdout, done.stderr) == (question, b"")
