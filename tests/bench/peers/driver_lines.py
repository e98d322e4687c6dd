"""The drivers' side of the lines: a job comes in on standard input, its answers go out as one line.

Only the standard library: it runs in the peers' interpreters.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

Answers = Sequence[tuple[float, Sequence[tuple[float, int]]]]


def serve(version: str, run: Callable[[list[list[int]], int, int], Answers], lines: Any) -> None:
    """Say the version, then answer jobs until standard input ends."""
    _say(lines, version)
    for line in sys.stdin:
        job = json.loads(line)
        _say(lines, run(job["prompts"], job["concurrency"], job["output_tokens"]))


def own_output() -> Any:
    """Standard output for the lines alone: what a library prints goes to standard error from now on."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


def _say(lines: Any, what: object) -> None:
    lines.write(json.dumps(what) + "\n")
    lines.flush()
