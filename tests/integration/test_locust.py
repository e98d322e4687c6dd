"""The Locust file of `deploy/locust`, as a team runs it: against the whole stack, without its page."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

FILE = Path(__file__).parents[2] / "deploy/locust/locustfile.py"


def test_users_of_locust_are_served(tmp_path: Path):
    """Streams and whole answers come without a failure, and the rows of tokens are in the report."""
    with running_stack(worker_flags=[*SIMULATED, "--step-ms", "5"]) as stack:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "locust", "--locustfile", str(FILE)),
                *("--host", stack.gateways[0].endpoints["http"], "--headless", "--only-summary"),
                *("--users", "6", "--spawn-rate", "6", "--run-time", "8s", "--stop-timeout", "10"),
                *("--csv", str(tmp_path / "report"), "--skip-log-setup"),
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=250,
            env={"PATH": "/usr/bin:/bin", "HEADRACE_MAX_TOKENS": "10", "HOME": str(tmp_path)},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "report_stats.csv").open() as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    for name in ("chat, streamed", "time to first token", "time per output token"):
        assert int(rows[name]["Request Count"]) > 0, name
    assert int(rows["Aggregated"]["Failure Count"]) == 0
