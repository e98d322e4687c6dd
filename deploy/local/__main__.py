"""`headrace-local`: the whole stack on one machine until Ctrl-C."""

import asyncio
import os
import sys
from collections.abc import Sequence

from common.settings import CHECK_FLAG, read_and_check, tell_problems
from deploy.local.data_folder import FolderInUse
from deploy.local.launcher import run_stack
from deploy.local.preflight import port_problems, service_problems
from deploy.local.redis_command import NoRedisBinary
from deploy.local.settings import LocalSettings
from deploy.local.supervisor import GaveUp

_PROG = "headrace-local"
_USAGE_ERROR, _INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 after a stop that was asked for, 1 when the stack could not be kept running, 2 for wrong settings.

    Of a command that is run, its own.
    """
    words = sys.argv[1:] if argv is None else argv
    settings, problems = read_and_check(
        LocalSettings,
        words,
        os.environ,
        prog=_PROG,
        about="Runs Redis, a gateway, a scheduler and workers on this machine until Ctrl-C.",
    )
    if not problems:
        problems += port_problems(settings, os.environ)
    try:
        found = asyncio.run(service_problems(settings))
    except KeyboardInterrupt:
        return _INTERRUPTED
    problems += [one for one in found if one not in problems]
    if problems:
        tell_problems(problems, _PROG)
        return _USAGE_ERROR
    if CHECK_FLAG in words:
        return 0
    # Everything shares this machine. Threads that spin while they wait for one another take the cores
    # from those they wait for: a busy machine then computes twenty times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    status = 0
    try:
        status = asyncio.run(run_stack(settings))
    except* (GaveUp, FolderInUse, NoRedisBinary) as group:
        for problem in group.exceptions:
            print(f"{_PROG}: {problem}", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
