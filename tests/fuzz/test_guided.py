"""Inputs that coverage leads to: no parser of ours raises what nobody expects, and what is accepted is stored unaltered."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fuzz.tally import TRIED
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(1800))]

# An input of these costs a thousandth of one that goes through the system.
_RUNS_PER_EXAMPLE = 50
# Less was reached only where the modules were imported before they could be watched.
_LEAST_COVERED = 60


@pytest.mark.parametrize("target", ["grpc", "http", "stored"])
def test_every_input_is_read_or_refused(target: str, tmp_path: Path) -> None:
    """For as many runs as were asked for; whatever is found is in the output, as bytes and as a traceback."""
    runs = settings().max_examples * _RUNS_PER_EXAMPLE
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", target, f"-runs={runs}"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
        },  # libFuzzer ends the process: nothing in it cleans up
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
    covered = re.findall(r"DONE +cov: (\d+)", done.stderr)
    assert int(covered[0]) > _LEAST_COVERED, "nothing was watched"
    TRIED["guided"] += runs
