"""`headrace-local`: the whole stack on one machine until Ctrl-C."""

import asyncio
import os
import sys
from collections.abc import Sequence

from common.settings import settings_or_exit
from deploy.local.data_folder import FolderInUse
from deploy.local.launcher import run_stack
from deploy.local.redis_command import NoRedisBinary
from deploy.local.run_command import CommandFailed
from deploy.local.settings import LocalSettings
from deploy.local.supervisor import GaveUp


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 after a stop that was asked for, 1 when the stack could not be kept running."""
    settings = settings_or_exit(
        LocalSettings,
        sys.argv[1:] if argv is None else argv,
        os.environ,
        prog="headrace-local",
        about="Runs Redis, a gateway, a scheduler and workers on this machine until Ctrl-C.",
    )
    # Everything shares this machine. Threads that spin while they wait for one another take the cores
    # from those they wait for: a busy machine then computes twenty times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    status = 0
    try:
        asyncio.run(run_stack(settings))
    except* (CommandFailed, GaveUp, FolderInUse, NoRedisBinary) as problems:
        for problem in problems.exceptions:
            print(f"headrace-local: {problem}", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
