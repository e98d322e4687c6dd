"""`headrace bench` and `headrace top` against a running stack."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def headrace(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *words, "--target", stack.targets[0]],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": "protos/python"},
    )


def test_load_is_measured_kept_drawn_and_compared(tmp_path):
    """Closed and open loop: every request is answered, and figures, page and comparison say the same."""
    work = tmp_path / "work.jsonl"
    work.write_text('{"prompt": "one", "max_tokens": 4}\n{"prompt": "two", "max_tokens": 6}\n')
    flags = ("--requests", "12", "--workload", str(work), "--ttft-ms", "60000")
    with running_stack(worker_flags=[*SIMULATED, "--step-ms", "2"]) as stack:
        closed = headrace(
            stack, "bench", *flags, "--concurrency", "2..4", "--json", str(tmp_path / "a.json")
        )
        assert closed.returncode == 0, closed.stderr
        found = json.loads((tmp_path / "a.json").read_text())
        assert [one["load"] for one in found["levels"]] == [2, 4]
        for one in found["levels"]:
            assert (one["requests"], one["errors"]) == (12, 0)
            assert one["tokens_per_s"] * one["seconds"] == pytest.approx(60)
            assert one["goodput_per_s"] == pytest.approx(one["requests_per_s"])
        opened = headrace(stack, "bench", *flags, "--rate", "40", "--requests", "8")
        assert opened.returncode == 0, opened.stderr
        assert "40/s" in opened.stdout
        again = headrace(
            stack,
            "bench",
            *flags,
            *("--concurrency", "4", "--compare", str(tmp_path / "a.json")),
            *("--plot", str(tmp_path / "p.html")),
        )
        assert again.returncode == 0, again.stderr
        assert "%)" in again.stdout
        assert "<img" in (tmp_path / "p.html").read_text()
        shown = headrace(stack, "top", "--frames", "2", "--interval", "0.1")
        assert shown.stdout.count("worker-0") == 2
    kept = headrace(stack, "bench", "--load", str(tmp_path / "a.json"))
    assert kept.returncode == 0
    assert kept.stdout.splitlines()[1:] == closed.stdout.splitlines()[1:]
